// kl_optimal: evenly spaced in the angle atan(sigma) (Sabour et al. 2024, arXiv:2404.14507, theorem
// 3.1).
#include <cmath>

#include "diffusion/levels/schedule.h"

namespace ebb::schedules {
namespace {

struct Options {
  bool to_zero = true;
  void fields(auto&& f) {
    f("to_zero", to_zero, "end at 0; false: at the smallest level, one step later");
  }
};

std::vector<double> levels(const ScheduleInput& in, const Options& o) {
  std::vector<double> out =
      spaced(std::atan(in.sigma_max), std::atan(in.sigma_min), in.steps + (o.to_zero ? 0 : 1));
  for (double& s : out) s = std::tan(s);
  return o.to_zero ? with_zero(out) : out;
}

}  // namespace

const Schedule& kl_optimal() {
  static const Schedule s =
      make_schedule<Options>({.name = "kl_optimal",
                              .help = "evenly spaced in atan(sigma)",
                              .aliases = {{"kl_optimal_open", {{"to_zero", "false"}}}}},
                             levels);
  return s;
}

}  // namespace ebb::schedules
