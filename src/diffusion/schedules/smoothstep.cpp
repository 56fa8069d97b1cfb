// smoothstep: timesteps by 3 x^2 - 2 x^3, closer together at both ends (stable-diffusion.cpp).
#include <cmath>

#include "diffusion/levels/schedule.h"
#include "diffusion/levels/spacings.h"

namespace ebb::schedules {
namespace {

std::vector<double> levels(const ScheduleInput& in, const NoOptions&) {
  const auto last = static_cast<double>(in.levels.sigmas.size()) - 1;
  std::vector<double> out;
  for (int64_t i = 0; i < in.steps; ++i) {
    const double x = 1 - static_cast<double>(i) / static_cast<double>(in.steps);
    out.push_back(level_at_timestep(in.levels, std::round(x * x * (3 - 2 * x) * last)));
  }
  return with_zero(out);
}

}  // namespace

const Schedule& smoothstep() {
  static const Schedule s = make_schedule<NoOptions>(
      {.name = "smoothstep", .help = "timesteps denser at both ends", .picks = true}, levels);
  return s;
}

}  // namespace ebb::schedules
