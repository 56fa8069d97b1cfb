// turbo: the timesteps that SD-Turbo and SDXL-Turbo were distilled for (Sauer et al. 2023,
// arXiv:2311.17042): 999, 899, ... 99.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "diffusion/levels/schedule.h"
#include "diffusion/levels/spacings.h"

namespace ebb::schedules {
namespace {

struct Options {
  bool spread = false;
  void fields(auto&& f) {
    f("spread", spread, "spread any number of steps from 999 on; else the first ones of the ten");
  }
};

std::vector<double> levels(const ScheduleInput& in, const Options& o) {
  const int64_t skipped = o.spread ? 0 : 10 - static_cast<int64_t>(10 * in.denoise);
  require(o.spread || skipped + in.steps <= 10 || in.dialect.gives_fewer_levels,
          "schedule: turbo has ", 10 - skipped, " steps (", in.steps,
          " were requested; spread=true has any number)");
  const auto last = static_cast<double>(in.levels.sigmas.size()) - 1;
  std::vector<double> out;
  for (int64_t i = 0; i < in.steps && (o.spread || skipped + i < 10); ++i) {
    const double t = o.spread ? std::nearbyint(static_cast<double>(in.steps - i) * (last + 1) /
                                                   static_cast<double>(in.steps) -
                                               1)
                              : static_cast<double>(10 - skipped - i) * 100 - 1;
    out.push_back(level_at_timestep(in.levels, std::min(t, last)));
  }
  return with_zero(out);
}

}  // namespace

const Schedule& turbo() {
  static const Schedule s =
      make_schedule<Options>({.name = "turbo",
                              .help = "timesteps of SD-Turbo",
                              .picks = true,
                              .own_denoise = true,
                              .exact_count = false,
                              .aliases = {{"sd_turbo"}, {"turbo_spread", {{"spread", "true"}}}}},
                             levels);
  return s;
}

}  // namespace ebb::schedules
