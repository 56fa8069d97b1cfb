// diffusers_timesteps: timesteps as diffusers spaces them; levels between those of the table lie on
// a straight line.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/names.h"
#include "diffusion/levels/schedule.h"
#include "diffusion/levels/spacings.h"

namespace ebb::schedules {
namespace {

struct Options {
  std::string spacing = "leading";
  int64_t offset = 1;
  bool skip_last = false, integer = true;
  std::string last = "zero", spread = "none";
  void fields(auto&& f) {
    f("spacing", spacing, "linspace (both ends), leading (from the first on) or trailing");
    f("offset", offset, "leading: added to every timestep");
    f("skip_last", skip_last, "space one step more and leave it out (diffusers' DPM-Solvers)");
    f("integer", integer,
      "linspace: integer timesteps; false: any (diffusers' Euler, Heun and LMS)");
    f("last", last, "the last level: zero or sigma_min");
    f("spread", spread, "between the same ends: none, karras, exponential or beta");
  }
};

double level_between(const std::vector<double>& table, double t) {
  const auto low = std::min(static_cast<size_t>(t), table.size() - 2);
  return table[low] + (t - static_cast<double>(low)) * (table[low + 1] - table[low]);
}

std::vector<double> timesteps(const ScheduleInput& in, const Options& o) {
  const auto count = static_cast<int64_t>(in.levels.sigmas.size());
  const auto last = static_cast<double>(count - 1);
  const int64_t n = in.steps + (o.skip_last ? 1 : 0);
  std::vector<double> out;
  for (int64_t i = 0; i < in.steps; ++i) {
    double t = 0;
    // From 0 on: one step alone is at 0.
    if (o.spacing == "linspace" && n > 1)
      t = static_cast<double>(n - 1 - i) * (last / static_cast<double>(n - 1));
    if (o.spacing == "linspace" && o.integer) t = std::nearbyint(t);
    if (o.spacing == "leading") t = static_cast<double>((n - 1 - i) * (count / n) + o.offset);
    if (o.spacing == "trailing") {
      const double step = static_cast<double>(count) / static_cast<double>(in.steps);
      t = std::nearbyint(static_cast<double>(count) - static_cast<double>(i) * step) - 1;
    }
    out.push_back(std::clamp(t, 0.0, last));
  }
  return out;
}

std::vector<double> levels(const ScheduleInput& in, const Options& o) {
  check_known("diffusers_timesteps: unknown spacing", o.spacing,
              std::vector<std::string>{"linspace", "leading", "trailing"});
  require(o.last == "zero" || o.last == "sigma_min",
          "diffusers_timesteps: last must be zero or sigma_min (", o.last, ")");
  const std::vector<double>& table = in.levels.sigmas;
  std::vector<double> out;
  for (const double t : timesteps(in, o)) out.push_back(level_between(table, t));
  out = spread_between(o.spread, std::move(out));
  if (o.last == "zero") return with_zero(out);
  out.push_back(table.front());
  return out;
}

}  // namespace

const Schedule& diffusers_timesteps() {
  static const Schedule s =
      make_schedule<Options>({.name = "diffusers_timesteps",
                              .help = "timesteps spaced as in diffusers",
                              .picks = true,
                              .aliases = {{"linspace", {{"spacing", "linspace"}}},
                                          {"leading", {{"spacing", "leading"}}},
                                          {"trailing", {{"spacing", "trailing"}}}}},
                             levels);
  return s;
}

}  // namespace ebb::schedules
