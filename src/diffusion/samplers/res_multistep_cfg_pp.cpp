// res_multistep_cfg_pp: res_multistep with CFG++ (Chung et al. 2024, arXiv:2406.08070).
#include "diffusion/solver/res_multistep.h"
#include "diffusion/solver/sampler.h"

namespace ebb::samplers {

const Sampler& res_multistep_cfg_pp() {
  static const Sampler s = make_sampler<ResOptions>(
      {.name = "res_multistep_cfg_pp",
       .help = "res_multistep with CFG++",
       .order = 2,
       .needs_uncond = true,
       .aliases = {{.name = "res_multistep_ancestral_cfg_pp",
                    .options = {{"eta", "1"}},
                    .kind = SamplerKind::ancestral,
                    .help = "res_multistep_cfg_pp that adds noise back"}}},
      [](Run& run, Latent x, const ResOptions& o) { return res_multistep(run, x, o, true); });
  return s;
}

}  // namespace ebb::samplers
