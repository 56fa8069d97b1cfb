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
  // Whether a sampler works on sqrt(alpha_bar) x and hands that on (result_scale()).
  bool (*hands_on_vp)(std::string_view sampler) = [](std::string_view) { return false; };
  // Samplers of timesteps take every k-th of the network's (levels_of_run()).
  bool lists_timesteps = false;
  // Brownian paths of a run that starts from data go over the whole list.
  bool draws_along_all = false;
};

// The web UI's samplers of sqrt(alpha_bar) x.
bool is_of_timesteps(std::string_view sampler);

// What the state that a run ends in is multiplied by: schedulers of diffusers that keep
// sqrt(alpha_bar) x hand that on, where the last level is not 0, and so do the web UI's samplers of
// timesteps. 1 for others. Throws Error.
double result_scale(std::string_view dialect, std::string_view sampler, double last_sigma);

const StartDialect& start_dialect(std::string_view name);  // throws Error, suggests the nearest

}  // namespace ebb
