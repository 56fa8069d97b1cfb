// laplace: quantiles of a Laplace distribution of ln(sigma) (Hang et al. 2024, arXiv:2407.03297);
// it ends above 0.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "diffusion/levels/schedule.h"

namespace ebb::schedules {
namespace {

struct Options {
  double mu = 0, beta = 0.5;
  void fields(auto&& f) {
    f("mu", mu, "ln(sigma) around which levels gather");
    f("beta", beta, "how far they spread");
  }
  void check() const { require(beta > 0, "laplace: beta must be positive (", beta, ")"); }
};

std::vector<double> levels(const ScheduleInput& in, const Options& o) {
  constexpr double least = 1e-5;  // keeps the ends finite
  std::vector<double> out = spaced(0, 1, in.steps);
  for (double& s : out) {
    const double off = 0.5 - s, sign = off > 0 ? 1 : off < 0 ? -1 : 0;
    const double lambda = o.mu - o.beta * sign * std::log(1 - 2 * std::abs(off) + least);
    s = std::clamp(std::exp(lambda), in.sigma_min, in.sigma_max);
  }
  return out;
}

}  // namespace

const Schedule& laplace() {
  static const Schedule s = make_schedule<Options>(
      {.name = "laplace", .help = "concentrated around one level; ends above 0", .to_zero = false},
      levels);
  return s;
}

}  // namespace ebb::schedules
