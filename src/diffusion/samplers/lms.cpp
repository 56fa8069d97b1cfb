// lms: the integral over the polynomial through the last slopes (Adams and Bashforth's method on
// unequal steps, as in k-diffusion).
#include <algorithm>

#include "diffusion/solver/multistep.h"
#include "diffusion/solver/sampler.h"

namespace ebb::samplers {
namespace {

struct Options {
  int64_t order = 4;
  void fields(auto&& f) { f("order", order, "slopes that are kept, 1 to 8"); }
  void check() const {
    require(order >= 1 && order <= 8, "lms: order must lie in [1, 8] (", order, ")");
  }
};

// Integrals of (place - start)^k over a step, added up at the middles of equal parts.
std::vector<double> midpoint_moments(double h, size_t count, int64_t parts) {
  std::vector<double> out(count, 0);
  const double width = h / static_cast<double>(parts);
  for (int64_t p = 0; p < parts; ++p) {
    double power = width;
    for (double& moment : out) {
      moment += power;
      power *= (static_cast<double>(p) + 0.5) * width;
    }
  }
  return out;
}

Latent run(Run& run, Latent x, const Options& o) {
  const std::optional<int64_t> parts = run.dialect().lms_intervals;
  History slopes(o.order);
  for (int64_t i = 0; i < run.steps(); ++i) {
    const double from = run.sigma(i), to = run.sigma(i + 1);
    const Latent denoised = run.denoise(x, from);
    slopes.push((x - denoised) / from);
    if (to == 0 && !run.dialect().multistep_to_zero) {
      x = denoised;
    } else {
      const auto nodes = nodes_before(run.sigmas(), i, slopes.size());
      const auto moments = parts ? midpoint_moments(to - from, nodes.size(), *parts)
                                 : power_moments(to - from, nodes.size());
      const std::vector<double> weights = polynomial_weights(nodes, moments);
      const int64_t newer = run.dialect().lms_newer;
      for (int64_t j = 0; j < slopes.size(); ++j)
        x.add(slopes[j == 0 ? 0 : std::max<int64_t>(j - newer, 1)],
              weights[static_cast<size_t>(j)]);
    }
    run.done(i, x);
  }
  return x;
}

}  // namespace

const Sampler& lms() {
  static const Sampler s = make_sampler<Options>(
      {.name = "lms", .help = "a polynomial through the last slopes", .order = 4}, run);
  return s;
}

}  // namespace ebb::samplers
