// ltx2: equal times, shifted by the number of tokens, stretched to end at 0.1 (LTX-Video, HaCohen
// et al. 2024, arXiv:2501.00103).
#include <cmath>

#include "base/error.h"
#include "diffusion/levels/flow_list.h"
#include "diffusion/levels/schedule.h"

namespace ebb::schedules {
namespace {

struct Options {
  double tokens = 4096, terminal = 0.1;
  MuLine line = {1024, 0.95, 4096, 2.05};
  bool stretch = true;
  void fields(auto&& f) {
    f("tokens", tokens, "of the latent video");
    f("base_mu", line.mu, "ln of the shift at 1024 tokens");
    f("more_mu", line.more_mu, "ln of the shift at 4096 tokens");
    f("stretch", stretch, "so that the last level above 0 is `terminal`");
    f("terminal", terminal, "the last level above 0");
  }
  void check() const { require(tokens > 0, "ltx2: tokens must be positive (", tokens, ")"); }
};

std::vector<double> levels(const ScheduleInput& in, const Options& o) {
  std::vector<double> out = flow_list(in.steps, std::exp(mu_of(o.tokens, o.line)));
  if (o.stretch) stretch_to(out, o.terminal);
  return with_zero(out);
}

}  // namespace

const Schedule& ltx2() {
  static const Schedule s =
      make_schedule<Options>({.name = "ltx2",
                              .help = "flow, shifted by tokens and stretched (LTX-Video)",
                              .space = Space::flow},
                             levels);
  return s;
}

}  // namespace ebb::schedules
