// StartDialect: conventions of programs at the start of a run, as data, in one place.
#pragma once

#include "diffusion/start/inpaint.h"
#include "diffusion/start/strength.h"

namespace ebb {

struct StartDialect {
  std::string_view name;
  StartPlan (*plan)(int64_t steps, double strength, const StrengthOptions&);
  // StartOptions::full_variance.
  bool (*full_variance)(const FirstNoise&) = [](const FirstNoise&) { return false; };
  KnownRegions (*known)(std::string_view sampler) = [](std::string_view) { return KnownRegions{}; };
};

const StartDialect& start_dialect(std::string_view name);  // throws Error, suggests the nearest

}  // namespace ebb
