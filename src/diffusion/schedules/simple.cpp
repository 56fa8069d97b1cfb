// simple: every so many of the network's levels, from the largest on (ComfyUI).
#include "diffusion/levels/schedule.h"

namespace ebb::schedules {
namespace {

std::vector<double> levels(const ScheduleInput& in, const NoOptions&) {
  const std::vector<double>& table = in.levels.sigmas;
  const double step = static_cast<double>(table.size()) / static_cast<double>(in.steps);
  std::vector<double> out;
  for (int64_t i = 0; i < in.steps; ++i)
    out.push_back(table[table.size() - 1 - static_cast<size_t>(static_cast<double>(i) * step)]);
  return with_zero(out);
}

}  // namespace

const Schedule& simple() {
  static const Schedule s = make_schedule<NoOptions>(
      {.name = "simple", .help = "every so many of the network's levels", .picks = true}, levels);
  return s;
}

}  // namespace ebb::schedules
