// sgm_uniform: as normal with one step more, of which the smallest level is left out (generative-
// models of Stability AI).
#include "diffusion/levels/schedule.h"
#include "diffusion/levels/spacings.h"

namespace ebb::schedules {
namespace {

std::vector<double> levels(const ScheduleInput& in, const NoOptions&) {
  const auto [start, end] = time_ends(in);
  std::vector<double> out = in.dialect.f32_schedules ? added_up_f32(start, end, in.steps + 1)
                                                     : spaced(start, end, in.steps + 1);
  out.pop_back();
  for (double& t : out) t = in.levels.sigma_of_time(t);
  return with_zero(out);
}

}  // namespace

const Schedule& sgm_uniform() {
  static const Schedule s = make_schedule<NoOptions>(
      {.name = "sgm_uniform", .help = "evenly spaced timesteps, the smallest left out"}, levels);
  return s;
}

}  // namespace ebb::schedules
