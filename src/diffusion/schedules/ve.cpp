// ve: evenly spaced in ln(sigma) (Song et al. 2021, arXiv:2011.13456); also called exponential.
#include <cmath>

#include "diffusion/schedules.h"

namespace ebb::schedules {
namespace {

std::vector<double> levels(const ScheduleOptions& o, const Precond&) {
  const double start = std::log(o.sigma_max), end = std::log(o.sigma_min);
  std::vector<double> out;
  for (int64_t i = 0; i < o.steps; ++i) out.push_back(std::exp(spaced(start, end, i, o.steps)));
  return out;
}

}  // namespace

const Schedule& ve() {
  static const Schedule s{.name = "ve",
                          .help = "evenly spaced in ln(sigma)",
                          .sigma_min = ve_sigma_min,
                          .sigma_max = ve_sigma_max,
                          .levels = levels};
  return s;
}

}  // namespace ebb::schedules
