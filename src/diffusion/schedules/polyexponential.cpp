// polyexponential: ln(sigma) as a power of the progress (k-diffusion); exponential where rho is 1.
#include <cmath>

#include "base/error.h"
#include "diffusion/levels/schedule.h"

namespace ebb::schedules {
namespace {

struct Options {
  double rho = 1;
  void fields(auto&& f) { f("rho", rho, "power of the way in ln(sigma)"); }
  void check() const { require(rho > 0, "polyexponential: rho must be positive (", rho, ")"); }
};

std::vector<double> levels(const ScheduleInput& in, const Options& o) {
  const double low = std::log(in.sigma_min), high = std::log(in.sigma_max);
  std::vector<double> out = spaced(1, 0, in.steps);
  for (double& s : out) s = std::exp(low + std::pow(s, o.rho) * (high - low));
  return with_zero(out);
}

}  // namespace

const Schedule& polyexponential() {
  static const Schedule s = make_schedule<Options>(
      {.name = "polyexponential", .help = "ln(sigma) as a power of the progress"}, levels);
  return s;
}

}  // namespace ebb::schedules
