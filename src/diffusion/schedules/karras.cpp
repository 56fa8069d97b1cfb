// karras: evenly spaced in sigma^(1/rho) (Karras et al. 2022, arXiv:2206.00364, equation 5).
#include <cmath>

#include "base/error.h"
#include "diffusion/levels/schedule.h"

namespace ebb::schedules {
namespace {

struct Options {
  double rho = 7;
  void fields(auto&& f) { f("rho", rho, "how much closer together the small levels lie"); }
  void check() const { require(rho > 0, "karras: rho must be positive (", rho, ")"); }
};

std::vector<double> levels(const ScheduleInput& in, const Options& o) {
  std::vector<double> out =
      spaced(std::pow(in.sigma_max, 1 / o.rho), std::pow(in.sigma_min, 1 / o.rho), in.steps);
  for (double& s : out) s = std::pow(s, o.rho);
  return with_zero(out);
}

}  // namespace

const Schedule& karras() {
  static const Schedule s = make_schedule<Options>(
      {.name = "karras", .help = "evenly spaced in sigma^(1/rho) (EDM)"}, levels);
  return s;
}

}  // namespace ebb::schedules
