// ddim: to the next level along the noise found in x, a share of it renewed (Song et al. 2021,
// arXiv:2010.02502, equation 12). Without renewed noise it is Euler's method.
#include "diffusion/solver/formulas.h"
#include "diffusion/solver/sampler.h"
#include "diffusion/solver/timesteps.h"

namespace ebb::samplers {
namespace {

struct Options {
  EtaOptions noise = {.eta = 0};
  void fields(auto&& f) { noise.fields(f); }
  void check() const {
    noise.check();
    require(noise.eta <= 1, "ddim: eta must not be above 1 (", noise.eta, ")");
  }
};

Latent run(Run& run, Latent x, const Options& o) {
  for (int64_t i = 0; i < run.steps(); ++i) {
    const double from = run.sigma(i), to = run.sigma(i + 1);
    const Latent denoised = run.denoise(x, from);
    const VpTarget target = vp_target(run, from, to);
    const AncestralStep step = ancestral_step_ve(run, from, target.sigma, o.noise.eta);
    x = denoised + step.down / from * (x - denoised);
    if (o.noise.eta > 0 || run.dialect().draws_unused_eta)
      renoise(run, x, step, from, to, o.noise.s_noise);
    x *= target.scale;
    run.done(i, x);
  }
  return x;
}

}  // namespace

const Sampler& ddim() {
  static const Sampler s = make_sampler<Options>({.name = "ddim",
                                                  .help = "along the noise found, renewing a share",
                                                  .kind = SamplerKind::ancestral,
                                                  .order = 1,
                                                  .flow = false},
                                                 run);
  return s;
}

}  // namespace ebb::samplers
