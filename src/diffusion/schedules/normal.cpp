// normal: evenly spaced in the network's time, the last and the first level included.
#include "diffusion/levels/schedule.h"
#include "diffusion/levels/spacings.h"

namespace ebb::schedules {
namespace {

std::vector<double> levels(const ScheduleInput& in, const NoOptions&) {
  const auto [start, end] = time_ends(in);
  const Discretisation& d = in.levels;
  // Where time itself ends at no noise there is no need for a 0 of our own.
  const bool at_zero = d.sigma_of_time(end) < 1e-5;
  std::vector<double> out = spaced(start, end, in.steps + (at_zero ? 1 : 0));
  for (double& t : out) t = d.sigma_of_time(t);
  if (!at_zero) return with_zero(out);
  out.back() = 0;
  return out;
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
