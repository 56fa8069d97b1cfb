#include "diffusion/schedules.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/names.h"

#define X(name)                \
  namespace ebb::schedules {   \
  const ebb::Schedule& name(); \
  }
#include "ebb/gen/schedules.inc"
#undef X

namespace ebb {
namespace {

// One end of the levels: what was asked for, or the schedule's own within the network's range.
double resolve(double asked, double own, const Precond& p, std::string_view name) {
  const double low = p.sigma_min(), high = p.sigma_max();
  if (asked == 0) return std::clamp(own, low, high);
  // Printed values read back a little off.
  require(asked >= low * (1 - 1e-6) && asked <= high * (1 + 1e-6), "schedule: ", name, " (", asked,
          ") must lie in [", low, ", ", high, "], the noise the network knows");
  return std::clamp(asked, low, high);
}

double first_set(double a, double b) { return a != 0 ? a : b; }

}  // namespace

double spaced(double a, double b, int64_t i, int64_t count) {
  if (count == 1) return a;
  return a + (b - a) * static_cast<double>(i) / static_cast<double>(count - 1);
}

std::vector<double> noise_levels(const Schedule& schedule, ScheduleOptions options,
                                 const Precond& precond) {
  const DiffusionConfig& c = precond.config();
  require(options.steps >= 1, "schedule: steps must be at least 1 (", options.steps, ")");
  require(options.rho > 0, "schedule: rho must be positive (", options.rho, ")");
  require(options.sigma_min >= 0 && options.sigma_max >= 0, "schedule: sigma_min (",
          options.sigma_min, ") and sigma_max (", options.sigma_max, ") must not be negative");
  options.sigma_min =
      resolve(first_set(options.sigma_min, c.sigma_min), schedule.sigma_min, precond, "sigma_min");
  options.sigma_max =
      resolve(first_set(options.sigma_max, c.sigma_max), schedule.sigma_max, precond, "sigma_max");
  require(options.sigma_min < options.sigma_max, "schedule: sigma_min (", options.sigma_min,
          ") must be below sigma_max (", options.sigma_max, ")");
  std::vector<double> levels = schedule.levels(options, precond);
  for (double& s : levels) s = precond.round_sigma(s);
  levels.push_back(0);
  for (size_t i = 1; i < levels.size(); ++i)
    require(levels[i] < levels[i - 1], "schedule: ", schedule.name, " has fewer than ",
            options.steps, " noise levels between ", options.sigma_min, " and ", options.sigma_max);
  return levels;
}

const std::vector<const Schedule*>& all_schedules() {
  static const std::vector<const Schedule*> table = {
#define X(name) &schedules::name(),
#include "ebb/gen/schedules.inc"
#undef X
  };
  return table;
}

const Schedule& find_schedule(std::string_view name) {
  std::vector<std::string> known;
  for (const Schedule* s : all_schedules()) {
    if (s->name == name) return *s;
    known.push_back(s->name);
  }
  fail("schedule: unknown name '", name, "'", suggestion(name, known));
}

const Schedule& default_schedule(const DiffusionConfig& config) {
  if (config.precond == "edm") return find_schedule("karras");
  if (config.precond == "eps" || config.precond == "v") return find_schedule("timesteps");
  return find_schedule(config.precond);
}

}  // namespace ebb
