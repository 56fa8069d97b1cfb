#include "diffusion/solver/euler_cfg_pp.h"

namespace ebb {

Latent euler_cfg_pp(Run& run, Latent x, const EtaOptions& o, bool ancestral) {
  const Dialect& dialect = run.dialect();
  const Space space = sde_space(run);
  const double eta = ancestral ? o.eta : 0;
  for (int64_t i = 0; i < run.steps(); ++i) {
    const double from = run.sigma(i), to = run.sigma(i + 1);
    const double before = alpha_of(space, from), alpha = alpha_of(space, to);
    const Denoised d = run.denoise_both(x, from);
    const Latent noise = (x - before * d.uncond) / from;
    const bool all = before == 0 && eta > 0 && dialect.renews_all_from_1;
    // Levels of x / alpha; flow's first is infinite.
    const AncestralStep step = ancestral_step_ve(from / before, to / alpha, all ? 1 : eta);
    const bool vain = ancestral && space == Space::ve && to > 0 && dialect.draws_unused_ve;
    x = alpha * d.guided + alpha * step.down * noise;
    renoise(run, x, {step.down, 1, alpha * step.noise, step.draws || vain}, from, to, o.s_noise);
    run.done(i, x);
  }
  return x;
}

}  // namespace ebb
