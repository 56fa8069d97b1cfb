// ddim_uniform: every k-th of the network's levels, from the second smallest on (the original
// implementation of DDIM for latent diffusion). Often a step more or less than asked for.
#include <algorithm>

#include "diffusion/levels/schedule.h"

namespace ebb::schedules {
namespace {

std::vector<double> levels(const ScheduleInput& in, const NoOptions&) {
  const std::vector<double>& table = in.levels.sigmas;
  const bool at_zero = table[1] < 1e-5;  // needs no 0 of its own
  const int64_t count = static_cast<int64_t>(table.size());
  const int64_t step = std::max<int64_t>(count / (in.steps + (at_zero ? 1 : 0)), 1);
  std::vector<double> out;
  if (!at_zero) out.push_back(0);
  for (int64_t x = 1; x < count; x += step) out.push_back(table[static_cast<size_t>(x)]);
  std::reverse(out.begin(), out.end());
  if (at_zero) out.back() = 0;
  return out;
}

}  // namespace

const Schedule& ddim_uniform() {
  static const Schedule s =
      make_schedule<NoOptions>({.name = "ddim_uniform",
                                .help = "as in DDIM; often a step more or less",
                                .picks = true,
                                .exact_count = false,
                                .aliases = {{"ddim"}}},
                               levels);
  return s;
}

}  // namespace ebb::schedules
