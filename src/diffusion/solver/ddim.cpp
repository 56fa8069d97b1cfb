#include "diffusion/solver/ddim.h"

#include "diffusion/solver/timesteps.h"

namespace ebb {

Latent ddim(Run& run, Latent x, const DdimOptions& o, bool cfg_pp) {
  for (int64_t i = 0; i < run.steps(); ++i) {
    const double from = run.sigma(i), to = run.sigma(i + 1);
    const Denoised d = run.denoise_both(x, from, cfg_pp);
    const VpTarget target = vp_target(run, from, to);
    const AncestralStep step = ancestral_step_ve(run, from, target.sigma, o.noise.eta);
    x = d.guided + step.down / from * (x - (cfg_pp ? d.uncond : d.guided));
    if (o.noise.eta > 0 || run.dialect().draws_unused_eta)
      renoise(run, x, step, from, to, o.noise.s_noise);
    x *= target.scale;
    run.done(i, x);
  }
  return x;
}

}  // namespace ebb
