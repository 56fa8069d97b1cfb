// vp: evenly spaced in the time of the VP process, from 1 to 1e-3 (Song et al. 2021,
// arXiv:2011.13456).
#include "diffusion/schedules.h"

namespace ebb::schedules {
namespace {

std::vector<double> levels(const ScheduleOptions& o, const Precond&) {
  const double start = vp_time(o.sigma_max), end = vp_time(o.sigma_min);
  std::vector<double> out;
  for (int64_t i = 0; i < o.steps; ++i) out.push_back(vp_sigma(spaced(start, end, i, o.steps)));
  return out;
}

}  // namespace

const Schedule& vp() {
  static const Schedule s{.name = "vp",
                          .help = "evenly spaced in the time of the VP process",
                          .sigma_min = vp_sigma(1e-3),
                          .sigma_max = vp_sigma(1.0),
                          .levels = levels};
  return s;
}

}  // namespace ebb::schedules
