// optimal_steps: lists found by dynamic programming for Flux, Wan and Chroma (Pei et al. 2025,
// arXiv:2503.21774).
#include <algorithm>
#include <span>

#include "base/error.h"
#include "base/names.h"
#include "diffusion/levels/schedule.h"
#include "diffusion/levels/spacings.h"

namespace ebb::schedules {
namespace {

struct Options {
  std::string model = "flux";
  void fields(auto&& f) { f("model", model, "flux, wan or chroma"); }
};

constexpr double flux[] = {0.9968, 0.9886, 0.9819, 0.975,  0.966, 0.9471,
                           0.9158, 0.8287, 0.5512, 0.2808, 0.001};
constexpr double wan[] = {1,     0.997, 0.995, 0.993, 0.991, 0.989, 0.987,
                          0.985, 0.98,  0.975, 0.973, 0.968, 0.96,  0.946,
                          0.927, 0.902, 0.864, 0.776, 0.539, 0.208, 0.001};
constexpr double chroma[] = {0.992, 0.99,  0.988, 0.985, 0.982, 0.978, 0.973, 0.968, 0.961,
                             0.953, 0.943, 0.931, 0.917, 0.9,   0.881, 0.858, 0.832, 0.802,
                             0.769, 0.731, 0.69,  0.646, 0.599, 0.55,  0.501, 0.451, 0.402,
                             0.355, 0.311, 0.27,  0.232, 0.199, 0.169, 0.143, 0.12,  0.101,
                             0.084, 0.07,  0.058, 0.048, 0.001};

std::vector<double> levels(const ScheduleInput& in, const Options& o) {
  check_known("optimal_steps: unknown model", o.model,
              std::vector<std::string>{"flux", "wan", "chroma"});
  const std::span<const double> table = o.model == "flux"  ? std::span<const double>(flux)
                                        : o.model == "wan" ? std::span<const double>(wan)
                                                           : std::span<const double>(chroma);
  return last_part(log_interpolated(table, in.steps + 1), in);
}

}  // namespace

const Schedule& optimal_steps() {
  static const Schedule s = make_schedule<Options>({.name = "optimal_steps",
                                                    .help = "optimised for Flux, Wan and Chroma",
                                                    .space = Space::flow,
                                                    .own_denoise = true},
                                                   levels);
  return s;
}

}  // namespace ebb::schedules
