// exponential: evenly spaced in ln(sigma).
#include "diffusion/levels/schedule.h"
#include "diffusion/levels/spacings.h"

namespace ebb::schedules {
namespace {

std::vector<double> levels(const ScheduleInput& in, const NoOptions&) {
  return with_zero(log_spaced(in.sigma_max, in.sigma_min, in.steps));
}

}  // namespace

const Schedule& exponential() {
  static const Schedule s = make_schedule<NoOptions>(
      {.name = "exponential", .help = "evenly spaced in ln(sigma)"}, levels);
  return s;
}

}  // namespace ebb::schedules
