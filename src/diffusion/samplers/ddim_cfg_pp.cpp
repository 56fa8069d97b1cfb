// ddim_cfg_pp: ddim from the guided prediction along the unconditionally predicted noise (CFG++:
// Chung et al. 2024, arXiv:2406.08070).
#include "diffusion/solver/ddim.h"
#include "diffusion/solver/sampler.h"

namespace ebb::samplers {

const Sampler& ddim_cfg_pp() {
  static const Sampler s = make_sampler<DdimOptions>(
      {.name = "ddim_cfg_pp",
       .help = "ddim with CFG++",
       .kind = SamplerKind::ancestral,
       .order = 1,
       .flow = false,
       .needs_uncond = true},
      [](Run& run, Latent x, const DdimOptions& o) { return ddim(run, x, o, true); });
  return s;
}

}  // namespace ebb::samplers
