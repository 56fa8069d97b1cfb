// DialectDefaults: what a program takes where nothing is said, by name, as data. Names are of ebb;
// those of the programs are aliases of them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/options.h"

namespace ebb {

// What a schedule's name stands for in the program: another schedule, or, if that is empty, the
// same one; and options that it has there.
struct ScheduleForm {
  std::string name, schedule;
  OptionTexts options = {};
};

// A sampler, by its name or by one of its other names, and the schedule that it runs on.
struct SamplerSchedule {
  std::string sampler, schedule;
};

// A sampler, by its name or by one of its other names, and options that it has in the program.
struct SamplerDefaults {
  std::string sampler;
  OptionTexts options;
};

struct DialectDefaults {
  std::vector<ScheduleForm> forms = {};
  // The schedule of samplers that are not in the list; empty: the network's usual one.
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

// ---- answers -------------------------------------------------------------------------------

// Options of a sampler that a dialect sets before those of its name and of the caller.
OptionTexts default_options(std::string_view dialect, std::string_view sampler);

// Where a sampler's numbers come from: a source for the start and the steps; and, unless it is
// empty, another one for the steps.
struct DefaultNoise {
  std::string source, steps = {};
  OptionTexts step_options = {};
};
// By the dialect. A name that ends in _gpu or _bt asks for a Brownian path in any of them.
DefaultNoise default_noise(std::string_view dialect, std::string_view sampler);

}  // namespace ebb
