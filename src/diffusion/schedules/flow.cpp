// flow: equal times, from 1 to 1 / steps by default, shifted like the network's levels, or by the
// size of the image (Esser et al. 2024, arXiv:2403.03206; Flux).
#include <cmath>

#include "base/error.h"
#include "diffusion/levels/flow_list.h"
#include "diffusion/levels/schedule.h"
#include "diffusion/levels/spacings.h"

namespace ebb::schedules {
namespace {

struct Options {
  double shift = 0, tokens = 0, terminal = 0;
  double first_time = 1, last_time = 0;
  MuLine line;
  std::string spread = "none";
  void fields(auto&& f) {
    f("shift", shift, "shift t / (1 + (shift - 1) t); 0: the network's");
    f("tokens", tokens, "of the image: shift by them, exp(mu), instead; 0: do not");
    f("base_tokens", line.tokens, "tokens: those of a small image");
    f("base_mu", line.mu, "tokens: mu of a small image");
    f("more_tokens", line.more_tokens, "tokens: those of a large image");
    f("more_mu", line.more_mu, "tokens: mu of a large image");
    f("first_time", first_time, "time of the first level (diffusers' DPM-Solvers: 0.999)");
    f("last_time", last_time, "time of the last level above 0; 0: first_time / steps");
    f("terminal", terminal, "stretch so that the last level above 0 is this; 0: do not");
    f("spread", spread, "between the same ends: none, karras, exponential or beta");
  }
  void check() const {
    require(shift >= 0 && tokens >= 0, "flow: shift (", shift, ") and tokens (", tokens,
            ") must not be negative");
    require(shift == 0 || tokens == 0, "flow: shift (", shift, ") or tokens (", tokens,
            "), not both");
    require(first_time > 0 && first_time <= 1 && last_time >= 0 && last_time < first_time,
            "flow: first_time (", first_time, ") must lie in (0, 1], last_time (", last_time,
            ") below it");
    require(line.tokens != line.more_tokens, "flow: base_tokens and more_tokens must differ (",
            line.tokens, ")");
  }
};

std::vector<double> levels(const ScheduleInput& in, const Options& o) {
  double shift = o.shift > 0 ? o.shift : in.levels.shift;
  if (o.tokens > 0) shift = std::exp(mu_of(o.tokens, o.line));
  const double last = o.last_time > 0 ? o.last_time : o.first_time / static_cast<double>(in.steps);
  std::vector<double> out = spaced(o.first_time, last, in.steps);
  for (double& t : out) t = shifted(t, shift);
  if (o.terminal > 0) stretch_to(out, o.terminal);
  return with_zero(spread_between(o.spread, std::move(out)));
}

}  // namespace

const Schedule& flow() {
  static const Schedule s = make_schedule<Options>({.name = "flow",
                                                    .help = "equal times, shifted (SD3, Flux)",
                                                    .space = Space::flow,
                                                    .aliases = {{"flux", {{"tokens", "4096"}}}}},
                                                   levels);
  return s;
}

}  // namespace ebb::schedules
