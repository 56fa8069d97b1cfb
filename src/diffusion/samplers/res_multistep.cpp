// res_multistep: D linear through the last two predictions, exactly integrated (RES: Zhang et al.
// 2023, arXiv:2308.02157). Without noise it is DPM-Solver++(2M) with Heun's coefficients.
#include "diffusion/solver/res_multistep.h"

#include "diffusion/solver/sampler.h"

namespace ebb::samplers {

const Sampler& res_multistep() {
  static const Sampler s = make_sampler<ResOptions>(
      {.name = "res_multistep",
       .help = "D linear through the last two predictions",
       .order = 2,
       .aliases = {{.name = "res_multistep_ancestral",
                    .options = {{"eta", "1"}},
                    .kind = SamplerKind::ancestral,
                    .help = "res_multistep that adds noise back"}}},
      [](Run& run, Latent x, const ResOptions& o) { return res_multistep(run, x, o, false); });
  return s;
}

}  // namespace ebb::samplers
