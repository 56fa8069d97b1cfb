// gradient_estimation: Euler with a slope carried on beyond the last two (Permenter and Yuan 2023,
// arXiv:2306.04848).
#include "diffusion/solver/gradient_estimation.h"

#include "diffusion/solver/sampler.h"

namespace ebb::samplers {

const Sampler& gradient_estimation() {
  static const Sampler s =
      make_sampler<GradientOptions>({.name = "gradient_estimation",
                                     .help = "Euler with a slope carried on beyond the last two",
                                     .order = 1,
                                     .aliases = {{"euler_ge"}}},
                                    [](Run& run, Latent x, const GradientOptions& o) {
                                      return gradient_estimation(run, x, o, false);
                                    });
  return s;
}

}  // namespace ebb::samplers
