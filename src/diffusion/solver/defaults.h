// Defaults of a run by dialect and sampler: schedule and noise. The sampler's options:
// dialect_defaults.h.
#pragma once

#include <string>
#include <string_view>

#include "base/options.h"
#include "diffusion/noise/noise.h"
#include "diffusion/solver/dialect_defaults.h"
#include "diffusion/solver/space.h"

namespace ebb {

// The schedule that a sampler's name implies, as "DPM++ 2M Karras" does; else the dialect's for
// this sampler, or for all on such models; "" if it has none.
std::string usual_schedule(std::string_view dialect, std::string_view sampler, Space space);

// find_noise_source(), with an error of its own for names of dialects.
const NoiseSource& find_source(std::string_view name);

// default_noise() opened: `options` are those of its first source; those that the steps' source has
// as well count there, too.
Noise open_default_noise(const DefaultNoise& from, const NoiseCall& call,
                         const OptionTexts& options = {});

}  // namespace ebb
