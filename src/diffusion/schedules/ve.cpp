// ve: evenly spaced in ln(sigma) between 100 and 0.02 (Song et al. 2021, arXiv:2011.13456).
#include "diffusion/levels/schedule.h"
#include "diffusion/levels/spacings.h"

namespace ebb::schedules {
namespace {

std::vector<double> levels(const ScheduleInput& in, const NoOptions&) {
  return with_zero(log_spaced(in.sigma_max, in.sigma_min, in.steps));
}

}  // namespace

const Schedule& ve() {
  static const Schedule s =
      make_schedule<NoOptions>({.name = "ve",
                                .help = "exponential, between the levels of score-based VE models",
                                .sigma_min = ve_sigma_min,
                                .sigma_max = ve_sigma_max},
                               levels);
  return s;
}

}  // namespace ebb::schedules
