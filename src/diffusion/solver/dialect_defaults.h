// DialectDefaults: the defaults of a program, by name, as data. Names are ebb's; those of the
// programs are aliases of them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/options.h"

namespace ebb {

// A schedule name in the program: another schedule, or, if empty, the same one; and its options
// there.
struct ScheduleForm {
  std::string name, schedule;
  OptionTexts options = {};
};

// A sampler, by its name or an alias, and its default schedule.
struct SamplerSchedule {
  std::string sampler, schedule;
};

// A sampler, by its name or an alias, and its options in the program.
struct SamplerDefaults {
  std::string sampler;
  OptionTexts options;
};

struct DialectDefaults {
  std::vector<ScheduleForm> forms = {};
  // The schedule of samplers not in the list; empty: the network's default.
  std::string schedule = {}, flow_schedule = {};
  std::vector<SamplerSchedule> schedules = {};
  std::vector<SamplerDefaults> defaults = {};
  // Samplers whose steps draw from a Brownian path, and that source's options.
  std::vector<std::string> brownian = {};
  OptionTexts brownian_options = {};
};

DialectDefaults comfy_defaults();
DialectDefaults kdiff_defaults();
DialectDefaults a1111_defaults();
DialectDefaults diffusers_defaults();
DialectDefaults sdcpp_defaults();

// ---- queries -------------------------------------------------------------------------------

// Options that a dialect sets for a sampler, before those of its name and of the caller.
OptionTexts default_options(std::string_view dialect, std::string_view sampler);

// The noise source of a sampler: one for start and steps; and, unless empty, another one for the
// steps.
struct DefaultNoise {
  std::string source, steps = {};
  OptionTexts step_options = {};
};
// By the dialect. A name that ends in _gpu or _bt implies a Brownian path in any of them.
DefaultNoise default_noise(std::string_view dialect, std::string_view sampler);

}  // namespace ebb
