// simple: every k-th of the network's levels, from the largest on (ComfyUI).
#include <algorithm>

#include "diffusion/levels/schedule.h"

namespace ebb::schedules {
namespace {

// How many levels lie before step i. Products that should be whole are less or more by precision.
template <class T>
size_t passed_at(int64_t i, const ScheduleInput& in) {
  const T step = static_cast<T>(in.levels.sigmas.size()) / static_cast<T>(in.steps);
  return static_cast<size_t>(static_cast<T>(i) * step);
}

std::vector<double> levels(const ScheduleInput& in, const NoOptions&) {
  const std::vector<double>& table = in.levels.sigmas;
  std::vector<double> out;
  for (int64_t i = 0; i < in.steps; ++i) {
    const size_t passed =
        in.dialect.f32_schedules ? passed_at<float>(i, in) : passed_at<double>(i, in);
    out.push_back(table[table.size() - 1 - std::min(passed, table.size() - 1)]);
  }
  return with_zero(out);
}

}  // namespace

const Schedule& simple() {
  static const Schedule s = make_schedule<NoOptions>(
      {.name = "simple", .help = "every k-th of the network's levels", .picks = true}, levels);
  return s;
}

}  // namespace ebb::schedules
