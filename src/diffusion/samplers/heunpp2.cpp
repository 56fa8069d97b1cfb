// heunpp2: slopes at this level and the next two, weighted by their levels (ComfyUI, Forge). Meant
// to be of order 2 to 3, it is of order 1: the weights do not tend to Heun's.
#include "diffusion/solver/formulas.h"
#include "diffusion/solver/sampler.h"

namespace ebb::samplers {
namespace {

// The slope of step `i` from `from`, of x at that level.
Latent slope(Run& run, Latent& x, double from, int64_t i) {
  Latent d = (x - run.denoise(x, from)) / from;
  const int64_t left = run.steps() - i;
  if (left == 1) return d;
  const double to = run.sigma(i + 1);
  Latent y = x + (to - from) * d;
  const Latent d2 = (y - run.denoise(y, to)) / to;
  const double all = static_cast<double>(std::min<int64_t>(left, 3)) * run.sigma(0);
  const double share2 = to / all;
  if (left == 2) return (1 - share2) * d + share2 * d2;
  const double next = run.sigma(i + 2), share3 = next / all;
  Latent z = y + (next - to) * d2;
  const Latent d3 = (z - run.denoise(z, next)) / next;
  return (1 - share2 - share3) * d + share2 * d2 + share3 * d3;
}

Latent run(Run& run, Latent x, const ChurnOptions& o) {
  for (int64_t i = 0; i < run.steps(); ++i) {
    const double from = churn(run, x, i, o, run.dialect().draws_unused_heunpp2);
    const Latent d = slope(run, x, from, i);
    x += (run.sigma(i + 1) - from) * d;
    run.done(i, x);
  }
  return x;
}

}  // namespace

const Sampler& heunpp2() {
  static const Sampler s =
      make_sampler<ChurnOptions>({.name = "heunpp2",
                                  .help = "slopes at three levels a step; of order 1 only",
                                  .order = 1,
                                  .aliases = {{"heunpp"}}},
                                 run);
  return s;
}

}  // namespace ebb::samplers
