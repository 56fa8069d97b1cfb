// gradient_estimation_cfg_pp: gradient_estimation with CFG++ (Chung et al. 2024, arXiv:2406.08070).
#include "diffusion/solver/gradient_estimation.h"
#include "diffusion/solver/sampler.h"

namespace ebb::samplers {

const Sampler& gradient_estimation_cfg_pp() {
  static const Sampler s =
      make_sampler<GradientOptions>({.name = "gradient_estimation_cfg_pp",
                                     .help = "gradient_estimation with CFG++",
                                     .order = 1,
                                     .needs_uncond = true},
                                    [](Run& run, Latent x, const GradientOptions& o) {
                                      return gradient_estimation(run, x, o, {.eta = 0}, true);
                                    });
  return s;
}

}  // namespace ebb::samplers
