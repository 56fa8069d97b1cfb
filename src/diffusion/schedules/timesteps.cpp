// timesteps: evenly spaced in the timestep of a discrete-time network, the last and the first one
// included; levels between two timesteps are interpolated in ln(sigma).
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "diffusion/schedules.h"

namespace ebb::schedules {
namespace {

double sigma_of(const std::vector<double>& table, double t) {
  const auto low = std::min(static_cast<size_t>(t), table.size() - 2);
  const double w = t - static_cast<double>(low);
  return std::exp((1 - w) * std::log(table[low]) + w * std::log(table[low + 1]));
}

std::vector<double> levels(const ScheduleOptions& o, const Precond& precond) {
  require(precond.config().discrete(), "schedule: timesteps needs a network with timesteps (",
          precond.config().precond, " has none)");
  const double start = precond.timestep_of(o.sigma_max), end = precond.timestep_of(o.sigma_min);
  std::vector<double> out;
  for (int64_t i = 0; i < o.steps; ++i)
    out.push_back(sigma_of(precond.table().sigma, spaced(start, end, i, o.steps)));
  return out;
}

}  // namespace

const Schedule& timesteps() {
  static const Schedule s{.name = "timesteps",
                          .help = "evenly spaced timesteps of a discrete-time network",
                          .sigma_min = 0,
                          .sigma_max = std::numeric_limits<double>::infinity(),
                          .levels = levels};
  return s;
}

}  // namespace ebb::schedules
