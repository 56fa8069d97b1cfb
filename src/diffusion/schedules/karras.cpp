// karras: evenly spaced in sigma^(1/rho) (Karras et al. 2022, arXiv:2206.00364, equation 5).
#include "base/error.h"
#include "diffusion/levels/schedule.h"
#include "diffusion/levels/spacings.h"

namespace ebb::schedules {
namespace {

struct Options {
  double rho = 7;
  void fields(auto&& f) { f("rho", rho, "how much closer together the small levels lie"); }
  void check() const { require(rho > 0, "karras: rho must be positive (", rho, ")"); }
};

std::vector<double> levels(const ScheduleInput& in, const Options& o) {
  return with_zero(karras_spaced(in.sigma_max, in.sigma_min, in.steps, o.rho));
}

}  // namespace

const Schedule& karras() {
  static const Schedule s = make_schedule<Options>(
      {.name = "karras", .help = "evenly spaced in sigma^(1/rho) (EDM)"}, levels);
  return s;
}

}  // namespace ebb::schedules
