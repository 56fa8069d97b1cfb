// heunpp2: slopes at this level and the next two, weighted by their levels (ComfyUI, Forge). Meant
// to be of order 2 to 3, it is of order 1: the weights do not tend to Heun's. heunpp2_exact has the
// weights of the parabola through the slopes, and order 2.
#include "diffusion/solver/formulas.h"
#include "diffusion/solver/multistep.h"
#include "diffusion/solver/sampler.h"

namespace ebb::samplers {
namespace {

struct Options {
  ChurnOptions churn;
  bool exact = false;
  void fields(auto&& f) {
    churn.fields(f);
    f("exact", exact, "weights that are exact for slopes on a parabola");
  }
  void check() const { churn.check(); }
};

// Weights of the slopes at `levels`, the first two of which the step joins. `scale`: the first
// level of all.
std::vector<double> weights(const std::vector<double>& levels, double scale, bool exact) {
  const double from = levels[0], step = levels[1] - from;
  if (exact) {
    std::vector<double> nodes;
    for (const double s : levels) nodes.push_back(s - from);
    return polynomial_weights(nodes, power_moments(step, nodes.size()));
  }
  std::vector<double> w = {step};
  for (size_t k = 1; k < levels.size(); ++k) {
    w.push_back(step * levels[k] / (static_cast<double>(levels.size()) * scale));
    w[0] -= w[k];
  }
  return w;
}

// x at the end of step `i` from `from`.
Latent moved(Run& run, Latent x, double from, int64_t i, bool exact) {
  const int64_t count = std::min<int64_t>(run.steps() - i, 3);
  Latent d = noise_in(run, x, from);  // x is one vector now
  if (count == 1) return x + (run.sigma(i + 1) - from) * d;
  std::vector<double> levels = {from};
  for (int64_t k = 1; k < count; ++k) levels.push_back(run.sigma(i + k));
  const std::vector<double> w = weights(levels, run.sigma(0), exact);
  Latent y = x, sum = x;
  for (size_t k = 0; k < w.size(); ++k) {
    sum.add(d, w[k]);
    if (k + 1 == w.size()) break;
    y += (levels[k + 1] - levels[k]) * d;
    d = noise_in(run, y, levels[k + 1]);
  }
  return sum;
}

Latent run(Run& run, Latent x, const Options& o) {
  for (int64_t i = 0; i < run.steps(); ++i) {
    const double from = churn(run, x, i, o.churn, run.dialect().draws_unused_heunpp2);
    x = moved(run, std::move(x), from, i, o.exact);
    run.done(i, x);
  }
  return x;
}

}  // namespace

const Sampler& heunpp2() {
  static const Sampler s = make_sampler<Options>(
      {.name = "heunpp2",
       .help = "slopes at three levels a step; of order 1 only",
       .order = 1,
       .aliases = {{"heunpp"},
                   {.name = "heunpp2_exact",
                    .options = {{"exact", "true"}},
                    .order = 2,
                    .help = "slopes at three levels a step, with exact weights"}}},
      run);
  return s;
}

}  // namespace ebb::samplers
