// vp: evenly spaced in the time of the VP process, from 1 to 1e-3 (Song et al. 2021,
// arXiv:2011.13456).
#include "diffusion/levels/schedule.h"

namespace ebb::schedules {
namespace {

std::vector<double> levels(const ScheduleInput& in, const NoOptions&) {
  std::vector<double> out = spaced(vp_time(in.sigma_max), vp_time(in.sigma_min), in.steps);
  for (double& s : out) s = vp_sigma(s);
  return with_zero(out);
}

}  // namespace

const Schedule& vp() {
  static const Schedule s =
      make_schedule<NoOptions>({.name = "vp",
                                .help = "evenly spaced in the time of the VP process",
                                .sigma_min = vp_sigma(1e-3),
                                .sigma_max = vp_sigma(1.0)},
                               levels);
  return s;
}

}  // namespace ebb::schedules
