// normal: evenly spaced in the network's time, the last and the first level included.
#include "diffusion/levels/schedule.h"

namespace ebb::schedules {
namespace {

std::vector<double> levels(const ScheduleInput& in, const NoOptions&) {
  const Discretisation& d = in.levels;
  std::vector<double> out = spaced(d.time_of(in.sigma_max), d.time_of(in.sigma_min), in.steps);
  for (double& t : out) t = d.sigma_of_time(t);
  return with_zero(out);
}

}  // namespace

const Schedule& normal() {
  static const Schedule s =
      make_schedule<NoOptions>({.name = "normal",
                                .help = "evenly spaced timesteps, both ends included",
                                .aliases = {{"timesteps"}, {"uniform"}, {"discrete"}}},
                               levels);
  return s;
}

}  // namespace ebb::schedules
