// flux2: equal times, shifted by a rule found by trial for tokens and steps (FLUX.2).
#include <cmath>

#include "base/error.h"
#include "diffusion/levels/flow_list.h"
#include "diffusion/levels/schedule.h"

namespace ebb::schedules {
namespace {

struct Options {
  double tokens = 4096;
  void fields(auto&& f) { f("tokens", tokens, "of the latent image, width * height / 256"); }
  void check() const { require(tokens > 0, "flux2: tokens must be positive (", tokens, ")"); }
};

std::vector<double> levels(const ScheduleInput& in, const Options& o) {
  return with_zero(
      flow_list(in.steps, std::exp(flux2_mu(o.tokens, static_cast<double>(in.steps)))));
}

}  // namespace

const Schedule& flux2() {
  static const Schedule s = make_schedule<Options>(
      {.name = "flux2", .help = "flow, shifted by tokens and steps (FLUX.2)", .space = Space::flow},
      levels);
  return s;
}

}  // namespace ebb::schedules
