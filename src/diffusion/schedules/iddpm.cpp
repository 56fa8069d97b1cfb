// iddpm: evenly spaced among the 1000 levels of the cosine process (Nichol and Dhariwal 2021;
// Karras et al. 2022, table 1).
#include <cmath>

#include "base/error.h"
#include "diffusion/levels/schedule.h"

namespace ebb::schedules {
namespace {

std::vector<double> levels(const ScheduleInput& in, const NoOptions&) {
  const std::vector<double> all =
      in.levels.discrete_only ? in.levels.sigmas : beta_table("cosine", 1000).sigma;
  std::vector<double> within;
  for (auto s = all.rbegin(); s != all.rend(); ++s)
    if (*s >= in.sigma_min && *s <= in.sigma_max) within.push_back(*s);
  require(static_cast<int64_t>(within.size()) >= in.steps, "schedule: iddpm has fewer than ",
          in.steps, " noise levels between ", in.sigma_min, " and ", in.sigma_max);
  std::vector<double> out;
  for (const double at : spaced(0, static_cast<double>(within.size()) - 1, in.steps))
    out.push_back(within[static_cast<size_t>(std::nearbyint(at))]);
  return with_zero(out);
}

}  // namespace

const Schedule& iddpm() {
  static const Schedule s =
      make_schedule<NoOptions>({.name = "iddpm",
                                .help = "evenly spaced among the levels of the cosine process",
                                .sigma_min = 0.002,
                                .sigma_max = 81},
                               levels);
  return s;
}

}  // namespace ebb::schedules
