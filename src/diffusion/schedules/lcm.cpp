// lcm: timesteps of latent consistency models, every twentieth of 1000 (Luo et al. 2023,
// arXiv:2310.04378).
#include "base/error.h"
#include "diffusion/levels/schedule.h"
#include "diffusion/levels/spacings.h"

namespace ebb::schedules {
namespace {

struct Options {
  int64_t original_steps = 50;
  void fields(auto&& f) { f("original_steps", original_steps, "timesteps of the distillation"); }
  void check() const {
    require(original_steps >= 1 && original_steps <= 1000,
            "lcm: original_steps must lie in [1, 1000] (", original_steps, ")");
  }
};

std::vector<double> levels(const ScheduleInput& in, const Options& o) {
  const int64_t every = 1000 / o.original_steps;
  std::vector<double> out;
  for (int64_t i = 0; i < in.steps; ++i) {
    const int64_t t = (o.original_steps - i * o.original_steps / in.steps) * every - 1;
    out.push_back(level_at_timestep(in.levels, static_cast<double>(t)));
  }
  return with_zero(out);
}

}  // namespace

const Schedule& lcm() {
  static const Schedule s = make_schedule<Options>(
      {.name = "lcm", .help = "timesteps of latent consistency models", .picks = true}, levels);
  return s;
}

}  // namespace ebb::schedules
