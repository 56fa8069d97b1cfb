// gits: lists found on sampling trajectories of Stable Diffusion (Chen et al. 2024,
// arXiv:2405.11326).
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "diffusion/levels/gits_table.h"
#include "diffusion/levels/schedule.h"
#include "diffusion/levels/spacings.h"

namespace ebb::schedules {
namespace {

struct Options {
  double coefficient = 1.2;
  void fields(auto&& f) {
    f("coefficient", coefficient, "0.8 to 1.5: above 1 more small levels, below 1 more large ones");
  }
  void check() const {
    require(coefficient >= 0.775 && coefficient <= 1.525,
            "gits: coefficient must lie in [0.8, 1.5] (", coefficient, ")");
  }
};

std::vector<double> levels(const ScheduleInput& in, const Options& o) {
  const int64_t row =
      std::clamp<int64_t>(std::lround((o.coefficient - 0.8) / 0.05), 0, gits_coefficients - 1);
  const std::vector<double> list = gits_levels(row, std::clamp<int64_t>(in.steps, 2, 20));
  const bool given = in.steps >= 2 && in.steps <= 20;
  return last_part(given ? list : log_interpolated(list, in.steps + 1, in.dialect.f32_schedules),
                   in);
}

}  // namespace

const Schedule& gits() {
  static const Schedule s =
      make_schedule<Options>({.name = "gits",
                              .help = "optimised on trajectories of Stable Diffusion",
                              .own_denoise = true},
                             levels);
  return s;
}

}  // namespace ebb::schedules
