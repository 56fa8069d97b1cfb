// bong_tangent: two arctangents, one from the largest level to the middle and one from there to the
// smallest (RES4LYF).
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "diffusion/levels/schedule.h"

namespace ebb::schedules {
namespace {

struct Options {
  double pivot_1 = 0.6, pivot_2 = 0.6, slope_1 = 0.2, slope_2 = 0.2;
  double start = 1, middle = 0.5, end = 0;
  bool scaled = true;
  void fields(auto&& f) {
    f("pivot_1", pivot_1, "where the first arctangent is steepest, as a share of the steps");
    f("pivot_2", pivot_2, "where the second one is");
    f("slope_1", slope_1, "how steep the first one is");
    f("slope_2", slope_2, "how steep the second one is");
    f("start", start, "the first level, as a share of the way between 0 and 1");
    f("middle", middle, "where the arctangents meet, likewise");
    f("end", end, "the last level, likewise; 0: level 0");
    f("scaled", scaled, "between the network's levels; false: between 1 and 0");
  }
  void check() const {
    for (const double p : {pivot_1, pivot_2})
      require(p >= 0 && p <= 1, "bong_tangent: pivots must lie in [0, 1] (", p, ")");
    for (const double s : {slope_1, slope_2})
      require(s > 0, "bong_tangent: slopes must be positive (", s, ")");
    require(1 >= start && start > middle && middle > end && end >= 0, "bong_tangent: start (",
            start, "), middle (", middle, ") and end (", end, ") must fall from 1 to 0");
  }
};

struct Tangent {
  double slope, pivot, start, end;
};

// `count` values from start to end.
std::vector<double> tangent(const Tangent& t, int64_t count) {
  const auto at = [&](int64_t x) {
    return -std::atan(t.slope * (static_cast<double>(x) - t.pivot));
  };
  if (count <= 1)
    return std::vector<double>(static_cast<size_t>(std::max<int64_t>(count, 0)), t.start);
  const double high = at(0), low = at(count - 1);
  std::vector<double> out;
  for (int64_t x = 0; x < count; ++x)
    out.push_back(t.end + (t.start - t.end) * (at(x) - low) / (high - low));
  return out;
}

std::vector<double> levels(const ScheduleInput& in, const Options& o) {
  const int64_t count = in.steps + 2;
  const auto n = static_cast<double>(count);
  const auto part = [](double v) { return static_cast<int64_t>(v); };
  // At least one value on either side.
  const int64_t first =
      std::clamp<int64_t>(part((n * o.pivot_1 + n * o.pivot_2) / 2), 1, count - 1);
  const double high = o.scaled ? in.sigma_max : 1, low = o.scaled ? in.sigma_min : 0;
  const auto level = [&](double share) { return low + (high - low) * share; };
  const double start = level(o.start), middle = level(o.middle), end = level(o.end);
  const double scale = n / 40;
  std::vector<double> out =
      tangent({o.slope_1 / scale, static_cast<double>(part(n * o.pivot_1)), start, middle}, first);
  out.pop_back();
  for (const double s :
       tangent({o.slope_2 / scale, static_cast<double>(part(n * o.pivot_2) - first), middle, end},
               count - first))
    out.push_back(s);
  if (o.end == 0) out.back() = 0;
  return out;
}

}  // namespace

const Schedule& bong_tangent() {
  static const Schedule s =
      make_schedule<Options>({.name = "bong_tangent",
                              .help = "two arctangents, slow around the middle",
                              .aliases = {{"bong_tangent_unscaled", {{"scaled", "false"}}}}},
                             levels);
  return s;
}

}  // namespace ebb::schedules
