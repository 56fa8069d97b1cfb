#include "diffusion/solver/gradient_estimation.h"

namespace ebb {

Latent gradient_estimation(Run& run, Latent x, const GradientOptions& o, const EtaOptions& noise,
                           bool cfg_pp) {
  Latent before;
  for (int64_t i = 0; i < run.steps(); ++i) {
    const double from = run.sigma(i), to = run.sigma(i + 1);
    const Denoised both = run.denoise_both(x, from, cfg_pp);
    const Latent d = (x - (cfg_pp ? both.uncond : both.guided)) / from;
    const AncestralStep step = ancestral_step(run, from, to, noise.eta);
    x = both.guided + step.down * d;
    if (i > 0 && to > 0) x += (o.ge_gamma - 1) * (step.down - from) * (d - before);
    if (noise.eta > 0) renoise(run, x, step, from, to, noise.s_noise);
    before = d;
    run.done(i, x);
  }
  return x;
}

}  // namespace ebb
