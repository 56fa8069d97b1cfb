// karras: evenly spaced in sigma^(1/rho) (Karras et al. 2022, arXiv:2206.00364, equation 5).
#include <cmath>

#include "diffusion/schedules.h"

namespace ebb::schedules {
namespace {

std::vector<double> levels(const ScheduleOptions& o, const Precond&) {
  const double high = std::pow(o.sigma_max, 1 / o.rho), low = std::pow(o.sigma_min, 1 / o.rho);
  std::vector<double> out;
  for (int64_t i = 0; i < o.steps; ++i)
    out.push_back(std::pow(spaced(high, low, i, o.steps), o.rho));
  return out;
}

}  // namespace

const Schedule& karras() {
  static const Schedule s{.name = "karras",
                          .help = "evenly spaced in sigma^(1/rho) (EDM)",
                          .sigma_min = 0.002,
                          .sigma_max = 80,
                          .levels = levels};
  return s;
}

}  // namespace ebb::schedules
