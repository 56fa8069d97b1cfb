// dpm_2: the slope half way in ln(sigma) (Lu et al. 2022, arXiv:2206.00927, DPM-Solver-2; with
// renewed noise as in Karras et al. 2022, arXiv:2206.00364, algorithm 2).
#include "diffusion/solver/formulas.h"
#include "diffusion/solver/sampler.h"

namespace ebb::samplers {
namespace {

Latent run(Run& run, Latent x, const ChurnOptions& o) {
  for (int64_t i = 0; i < run.steps(); ++i) {
    const double from = churn(run, x, i, o), to = run.sigma(i + 1);
    Latent d = noise_in(run, x, from);
    if (to > 0) {
      const double middle = std::sqrt(from * to);
      Latent y = x + (middle - from) * d;
      d = noise_in(run, y, middle);
    }
    x += (to - from) * d;
    run.done(i, x);
  }
  return x;
}

}  // namespace

const Sampler& dpm_2() {
  static const Sampler s =
      make_sampler<ChurnOptions>({.name = "dpm_2",
                                  .help = "the slope at the midpoint of a step, in ln(sigma)",
                                  .order = 2,
                                  .aliases = {{"kdpm2"}}},
                                 run);
  return s;
}

}  // namespace ebb::samplers
