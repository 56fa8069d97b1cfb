// beta_continuous: levels, not timesteps, by quantiles of the beta distribution (Stable Diffusion
// web UI, diffusers).
#include "diffusion/levels/schedule.h"
#include "diffusion/levels/spacings.h"

namespace ebb::schedules {
namespace {

struct Options {
  double alpha = 0.6, beta = 0.6;
  void fields(auto&& f) {
    f("alpha", alpha, "below 1: closer together at small levels");
    f("beta", beta, "below 1: closer together at large levels");
  }
};

std::vector<double> levels(const ScheduleInput& in, const Options& o) {
  return with_zero(beta_spaced(in.sigma_max, in.sigma_min, in.steps, o.alpha, o.beta));
}

}  // namespace

const Schedule& beta_continuous() {
  static const Schedule s = make_schedule<Options>(
      {.name = "beta_continuous", .help = "levels by quantiles of the beta distribution"}, levels);
  return s;
}

}  // namespace ebb::schedules
