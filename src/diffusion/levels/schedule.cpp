#include "diffusion/levels/schedule.h"

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

constexpr int64_t most_steps = 100'000;

struct End {
  std::string_view name;
  double asked, own, usual;
};

// The requested end; else the schedule's own or the network's default, within its range.
double resolve(const End& end, const Discretisation& levels) {
  const double low = levels.lowest, high = levels.highest;
  if (end.asked == 0) return std::clamp(end.own != 0 ? end.own : end.usual, low, high);
  // Printed values read back a little off.
  require(end.asked >= low * (1 - 1e-6) && end.asked <= high * (1 + 1e-6), "schedule: ", end.name,
          " (", end.asked, ") must lie in [", low, ", ", high, "], the noise the network knows");
  return std::clamp(end.asked, low, high);
}

ScheduleInput resolved(const Schedule& s, const Discretisation& levels, const ScheduleCall& c) {
  check_steps(c.steps);
  require(c.sigma_min >= 0 && c.sigma_max >= 0, "schedule: sigma_min (", c.sigma_min,
          ") and sigma_max (", c.sigma_max, ") must not be negative");
  const ScheduleInput in{
      levels, find_dialect(c.dialect), c.steps,
      resolve({"sigma_min", c.sigma_min, s.sigma_min, levels.sigma_min}, levels),
      resolve({"sigma_max", c.sigma_max, s.sigma_max, levels.sigma_max}, levels)};
  require(!s.picks || (c.sigma_min == 0 && c.sigma_max == 0), "schedule: ", s.name,
          " picks from the network's own levels: sigma_min (", c.sigma_min, ") and sigma_max (",
          c.sigma_max, ") do not apply");
  require(c.denoise > 0 && c.denoise <= 1, "schedule: denoise must lie in (0, 1] (", c.denoise,
          ")");
  require(in.sigma_min < in.sigma_max, "schedule: sigma_min (", in.sigma_min,
          ") must be below sigma_max (", in.sigma_max, ")");
  return in;
}

// Throws Error if all the levels above 0 are one: options that are extreme do that.
void check_spread(const std::vector<double>& list, const Schedule& s) {
  const auto zero = std::find(list.begin(), list.end(), 0.0);
  const auto count = zero - list.begin();
  constexpr double alike = 1e-6;  // of a level: single precision tells no more apart
  require(count < 2 || list.front() - *(zero - 1) > alike * list.front(), "schedule: ", s.name,
          " gives ", count, " levels that are all alike (", list.empty() ? 0 : list.front(),
          count < 2 ? "" : str(" to ", *(zero - 1)), "): its options are too extreme");
}

void check_levels(const std::vector<double>& list, const Schedule& s, const ScheduleInput& in) {
  for (size_t i = 0; i < list.size(); ++i) {
    require(std::isfinite(list[i]) && list[i] >= 0, "schedule: ", s.name,
            " gives no noise level at step ", i, " (", list[i], ")");
    require(i == 0 || list[i] <= list[i - 1], "schedule: ", s.name, " does not fall at step ", i,
            " (", i > 0 ? list[i - 1] : list[i], ", then ", list[i], ")");
  }
  if (in.steps > 1) check_spread(list, s);
  if (!in.levels.discrete_only) return;
  for (size_t i = 1; i < list.size(); ++i)
    require(list[i] < list[i - 1], "schedule: ", s.name, " has fewer than ", in.steps,
            " noise levels between ", in.sigma_min, " and ", in.sigma_max);
}

// ---- names ---------------------------------------------------------------------------------

std::optional<FoundSchedule> find_by_name(std::string_view name) {
  for (const Schedule* s : all_schedules()) {
    if (same_name(s->name, name)) return FoundSchedule{s, {}};
    for (const SamplerAlias& a : s->aliases)
      if (same_name(a.name, name)) return FoundSchedule{s, a.options};
  }
  return {};
}

std::vector<std::string> known_names() {
  std::vector<std::string> known;
  for (const Schedule* s : all_schedules()) {
    known.push_back(s->name);
    for (const SamplerAlias& a : s->aliases) known.push_back(a.name);
  }
  return known;
}

}  // namespace

void check_steps(int64_t steps) {
  require(steps >= 1, "schedule: steps must be at least 1 (", steps, ")");
  require(steps <= most_steps, "schedule: steps must be at most ", most_steps, " (", steps, ")");
}

std::vector<double> with_zero(std::vector<double> levels) {
  levels.push_back(0);
  return levels;
}

std::vector<double> noise_levels(std::string_view schedule, const Discretisation& levels,
                                 const ScheduleCall& call) {
  const Dialect& dialect = find_dialect(call.dialect);
  const FoundSchedule found = find_schedule(schedule, dialect);
  const std::optional<Space> space = found.schedule->space;
  require(!space || *space == levels.space, "schedule: ", schedule, " is for ",
          name_of(space.value_or(Space::ve)), " models (this one is ", name_of(levels.space), ")");
  ScheduleInput in = resolved(*found.schedule, levels, call);
  OptionTexts options = found.options;
  options.insert(options.end(), call.options.begin(), call.options.end());
  if (found.schedule->own_denoise && dialect.schedules_know_shares) {
    in.denoise = call.denoise;
  } else if (call.denoise < 0.9999) {
    const double steps = static_cast<double>(call.steps) / call.denoise;
    require(steps <= most_steps, "schedule: denoise (", call.denoise, ") is too little for ",
            call.steps, " steps (a list of ", steps, ", of at most ", most_steps, ")");
    in.steps = static_cast<int64_t>(steps);
  }
  const bool part = in.steps > call.steps;
  if (call.discard_penultimate) ++in.steps;
  std::vector<double> list = found.schedule->levels(in, options);
  if (call.discard_penultimate && list.size() >= 2) list.erase(list.end() - 2);
  if (part && static_cast<int64_t>(list.size()) > call.steps + 1)
    list.erase(list.begin(), list.end() - call.steps - 1);
  for (double& s : list)
    if (s > 0) s = levels.round(s);
  check_levels(list, *found.schedule, in);
  return list;
}

const std::vector<const Schedule*>& all_schedules() {
  static const std::vector<const Schedule*> table = {
#define X(name) &schedules::name(),
#include "ebb/gen/schedules.inc"
#undef X
  };
  return table;
}

FoundSchedule find_schedule(std::string_view name, const Dialect& dialect) {
  std::optional<FoundSchedule> found = find_by_name(name);
  const auto is_base = [&](const ScheduleForm& f) {
    return found && f.name == found->schedule->name;
  };
  const std::vector<ScheduleForm>& forms = dialect.defaults.forms;
  for (const ScheduleForm& f : forms) {
    const bool meant = same_name(f.name, name) || (is_base(f) && found->options.empty());
    if (f.schedule.empty() || !meant) continue;
    found = find_by_name(f.schedule);
    found->options.insert(found->options.end(), f.options.begin(), f.options.end());
    return *found;
  }
  require(found.has_value(), "schedule: unknown name '", name, "'",
          suggestion(name, known_names()));
  // Options of the name itself count before those that the dialect has for all its names.
  for (const ScheduleForm& f : forms)
    if (f.schedule.empty() && is_base(f))
      found->options.insert(found->options.begin(), f.options.begin(), f.options.end());
  return *found;
}

}  // namespace ebb
