// euler_ancestral_cfg_pp: steps from the guided prediction along the unconditionally predicted
// noise to below the level, then new noise (CFG++: Chung et al. 2024, arXiv:2406.08070).
#include "diffusion/solver/euler_cfg_pp.h"
#include "diffusion/solver/sampler.h"

namespace ebb::samplers {

const Sampler& euler_ancestral_cfg_pp() {
  static const Sampler s = make_sampler<EtaOptions>(
      {.name = "euler_ancestral_cfg_pp",
       .help = "euler_ancestral with CFG++",
       .kind = SamplerKind::ancestral,
       .order = 1,
       .needs_uncond = true,
       .aliases = {{"euler_a_cfg_pp"}}},
      [](Run& run, Latent x, const EtaOptions& o) { return euler_cfg_pp(run, x, o, true); });
  return s;
}

}  // namespace ebb::samplers
