// dpm_2_ancestral: dpm_2 to below the level, then noise is added back (k-diffusion).
#include "diffusion/solver/formulas.h"
#include "diffusion/solver/sampler.h"

namespace ebb::samplers {
namespace {

Latent run(Run& run, Latent x, const EtaOptions& o) {
  for (int64_t i = 0; i < run.steps(); ++i) {
    const double from = run.sigma(i), to = run.sigma(i + 1);
    AncestralStep step = ancestral_step(run, from, to, o.eta);
    Latent d = noise_in(run, x, from);
    if (step.down > 0) {
      const double middle = std::sqrt(from * step.down);
      Latent y = x + (middle - from) * d;
      d = noise_in(run, y, middle);
      step.draws |= run.dialect().draws_unused_eta;  // on flow models too
    } else if (to > 0 && run.dialect().no_noise_from_zero) {
      step = {};
    }
    x += (step.down - from) * d;
    renoise(run, x, step, from, to, o.s_noise);
    run.done(i, x);
  }
  return x;
}

}  // namespace

const Sampler& dpm_2_ancestral() {
  static const Sampler s =
      make_sampler<EtaOptions>({.name = "dpm_2_ancestral",
                                .help = "dpm_2 to below the level, then new noise",
                                .kind = SamplerKind::ancestral,
                                .order = 2,
                                .aliases = {{"dpm_2_a"}, {"kdpm2_ancestral"}}},
                               run);
  return s;
}

}  // namespace ebb::samplers
