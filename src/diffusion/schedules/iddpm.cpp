// iddpm: evenly spaced among the 1000 levels of the cosine process (Nichol and Dhariwal 2021;
// Karras et al. 2022, table 1).
#include <cmath>

#include "diffusion/schedules.h"

namespace ebb::schedules {
namespace {

std::vector<double> levels(const ScheduleOptions& o, const Precond& precond) {
  const std::vector<double> all = precond.config().precond == "iddpm"
                                      ? precond.table().sigma
                                      : beta_table("cosine", 1000).sigma;
  std::vector<double> within;
  for (auto s = all.rbegin(); s != all.rend(); ++s)
    if (*s >= o.sigma_min && *s <= o.sigma_max) within.push_back(*s);
  std::vector<double> out;
  const auto last = static_cast<double>(within.size()) - 1;
  for (int64_t i = 0; i < o.steps && !within.empty(); ++i)
    out.push_back(within[static_cast<size_t>(std::nearbyint(spaced(0, last, i, o.steps)))]);
  return out;
}

}  // namespace

const Schedule& iddpm() {
  static const Schedule s{.name = "iddpm",
                          .help = "evenly spaced among the levels of the cosine process",
                          .sigma_min = 0.002,
                          .sigma_max = 81,
                          .levels = levels};
  return s;
}

}  // namespace ebb::schedules
