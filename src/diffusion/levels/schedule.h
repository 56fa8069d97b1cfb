// Schedules: the noise levels of sampling. src/diffusion/schedules/<s>.cpp defines `const Schedule&
// ebb::schedules::<s>()`.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/options.h"
#include "diffusion/levels/discretisation.h"
#include "diffusion/solver/dialect.h"
#include "diffusion/solver/sampler.h"
#include "diffusion/solver/spaced.h"

namespace ebb {

// What a schedule sees. sigma_min and sigma_max are resolved.
struct ScheduleInput {
  const Discretisation& levels;
  const Dialect& dialect;
  int64_t steps = 18;
  double sigma_min = 0, sigma_max = 0;
  double denoise = 1;  // of schedules with own_denoise; else 1
};

struct Schedule {
  std::string name;
  std::string help;
  double sigma_min = 0, sigma_max = 0;  // its own, within the network's range; 0: the network's
  std::optional<Space> space = {};      // the only space that it supports
  bool picks = false;                   // selects among all of the network's levels: has no ends
  // Defines partial denoising (strength below 1) itself, in dialects whose schedules do.
  bool own_denoise = false;
  bool exact_count = true;  // gives as many levels as there are steps
  bool own_count = false;   // whatever the number of steps
  bool to_zero = true;      // the last level is 0
  std::vector<SamplerAlias> aliases = {};
  // All the levels, the last one among them, which is 0 but for a few. Throws Error.
  std::function<std::vector<double>(const ScheduleInput& in, const OptionTexts& options)> levels =
      {};
  std::function<std::vector<Option>()> options = {};
};

// A schedule whose options are a struct with fields() and, to refuse values, check().
template <class Options>
Schedule make_schedule(Schedule about,
                       std::vector<double> (*levels)(const ScheduleInput&, const Options&));

struct ScheduleCall {
  int64_t steps = 18;
  double sigma_min = 0, sigma_max = 0;  // ends; 0: the schedule's own, else the network's
  OptionTexts options = {};
  std::string dialect = "ebb";
  // Fraction of the way from noise to data that is left: the last `steps` levels above 0 of a
  // correspondingly longer list.
  double denoise = 1;
  // One level more; the last but one is then dropped (Dialect::discard_penultimate).
  bool discard_penultimate = false;
};

// Throws Error unless a list can have so many steps.
void check_steps(int64_t steps);

// Decreasing levels, the last one 0 except for a few schedules; mostly steps + 1 of them. Levels
// are rounded to those of the network. Throws Error if they are out of its range or too many.
std::vector<double> noise_levels(std::string_view schedule, const Discretisation& levels,
                                 const ScheduleCall& call);

// ---- what schedules share ------------------------------------------------------------------

// Levels, and 0 behind them.
std::vector<double> with_zero(std::vector<double> levels);

// ---- the table -----------------------------------------------------------------------------

const std::vector<const Schedule*>& all_schedules();

struct FoundSchedule {
  const Schedule* schedule;
  OptionTexts options;  // that the name implies
};
// By its name or an alias, ignoring case, spaces and punctuation, as the dialect defines it. Throws
// Error, suggests the nearest.
FoundSchedule find_schedule(std::string_view name, const Dialect& dialect = find_dialect("ebb"));

// ---- details -------------------------------------------------------------------------------

template <class Options>
Schedule make_schedule(Schedule about,
                       std::vector<double> (*levels)(const ScheduleInput&, const Options&)) {
  about.levels = [levels, name = about.name](const ScheduleInput& in, const OptionTexts& texts) {
    return levels(in, read_options<Options>(texts, name));
  };
  about.options = [] { return describe<Options>(); };
  return about;
}

}  // namespace ebb
