// beta: timesteps by quantiles of the beta distribution (Lee et al. 2024, arXiv:2407.12173).
// Timesteps that come twice count once.
#include <cmath>

#include "diffusion/levels/schedule.h"
#include "diffusion/levels/spacings.h"

namespace ebb::schedules {
namespace {

struct Options {
  double alpha = 0.6, beta = 0.6;
  void fields(auto&& f) {
    f("alpha", alpha, "below 1: closer together at small levels");
    f("beta", beta, "below 1: closer together at large levels");
  }
};

std::vector<double> levels(const ScheduleInput& in, const Options& o) {
  const std::vector<double>& table = in.levels.sigmas;
  std::vector<double> out;
  double before = -1;
  for (int64_t i = 0; i < in.steps; ++i) {
    const double q = 1 - static_cast<double>(i) / static_cast<double>(in.steps);
    // Half way between two timesteps the even one, whatever rounding left of the half.
    const double exact = beta_quantile(q, o.alpha, o.beta) * static_cast<double>(table.size() - 1);
    const double at = std::nearbyint(std::round(exact * 1e9) / 1e9);
    if (at != before) out.push_back(table[static_cast<size_t>(at)]);
    before = at;
  }
  return with_zero(out);
}

}  // namespace

const Schedule& beta() {
  static const Schedule s =
      make_schedule<Options>({.name = "beta",
                              .help = "timesteps by quantiles of the beta distribution",
                              .picks = true,
                              .exact_count = false,
                              .aliases = {{"beta57", {{"alpha", "0.5"}, {"beta", "0.7"}}}}},
                             levels);
  return s;
}

}  // namespace ebb::schedules
