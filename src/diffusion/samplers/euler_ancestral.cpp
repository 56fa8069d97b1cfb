// euler_ancestral: Euler to below the level, then noise is added back (k-diffusion; on flow models
// so that data and noise keep their shares).
#include "diffusion/solver/formulas.h"
#include "diffusion/solver/sampler.h"

namespace ebb::samplers {
namespace {

Latent run(Run& run, Latent x, const EtaOptions& o) {
  for (int64_t i = 0; i < run.steps(); ++i) {
    const double from = run.sigma(i), to = run.sigma(i + 1);
    const Latent denoised = run.denoise(x, from);
    AncestralStep step = ancestral_step(run, from, to, o.eta);
    step.draws |= to == 0 && run.space() == Space::ve && run.dialect().draws_unused_last;
    x = denoised + step.down / from * (x - denoised);
    renoise(run, x, step, from, to, o.s_noise);
    run.done(i, x);
  }
  return x;
}

}  // namespace

const Sampler& euler_ancestral() {
  static const Sampler s =
      make_sampler<EtaOptions>({.name = "euler_ancestral",
                                .help = "one slope a step to below the level, then new noise",
                                .kind = SamplerKind::ancestral,
                                .order = 1,
                                .aliases = {{"ltx_euler_ancestral_rf"},
                                            {"euler_a"},
                                            {.name = "ddim_trailing",
                                             .options = {{"eta", "0"}},
                                             .kind = SamplerKind::ode,
                                             .help = "one slope a step"}}},
                               run);
  return s;
}

}  // namespace ebb::samplers
