#include "diffusion/solver/res_multistep.h"

#include "diffusion/solver/exponential.h"

namespace ebb {
Latent res_multistep(Run& run, Latent x, const ResOptions& o, bool cfg_pp) {
  Latent before;
  double sigma_before = 0, down_before = 0;
  for (int64_t i = 0; i < run.steps(); ++i) {
    const double from = run.sigma(i), to = run.sigma(i + 1);
    const Denoised d = run.denoise_both(x, from, cfg_pp);
    const Latent& line = cfg_pp ? d.uncond : d.guided;
    const AncestralStep step = res_ancestral_step(run, from, to, o.noise.eta);
    if (i == 0 || step.down == 0 || down_before == 0) {
      x = d.guided + step.down / from * (x - line);
    } else {
      // In -ln(sigma) on flow models too. The distance to the previous prediction includes the
      // churn of the step's start.
      const ExponentialStep s = exponential_step(Space::ve, from, step.down, 0);
      const double at = std::log(down_before / sigma_before) / s.h;
      if (cfg_pp) x += d.guided - d.uncond;
      x = advance(s, x, {{0, line}, {at, before}});
    }
    renoise(run, x, step, from, to, o.noise.s_noise);
    before = line;
    sigma_before = from;
    down_before = step.down;
    run.done(i, x);
  }
  return x;
}

}  // namespace ebb
