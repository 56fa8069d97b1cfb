// The noise levels of a run and what else follows from the network, by a dialect's rules. Every
// front end (programs, the C API) uses it before sampling.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/options.h"
#include "diffusion/levels/discretisation.h"
#include "diffusion/solver/run.h"

namespace ebb {

struct LevelsOfRun {
  std::string sampler, schedule;  // by any of their names; a schedule may be "auto"
  int64_t steps = 18;
  OptionTexts options = {};  // of the schedule
  std::string dialect = "ebb";
  double sigma_min = 0, sigma_max = 0;  // 0: the defaults
  std::optional<double> strength = {};  // how much noise is added; none: a full run
  bool exact_steps = false;             // StrengthOptions::exact_steps
  std::string usual = {};               // the schedule of the published network
};
// The schedule; for "auto", that of the dialect and the sampler (usual_schedule()) if it supports
// the network's space, or else `usual`, or flow, normal (networks with timesteps) or karras.
std::string schedule_of_run(const LevelsOfRun& run, const Discretisation& levels);
// Throws Error for options of a schedule that is "auto" and turns out to be `schedule`.
void check_no_options(const OptionTexts& options, std::string_view schedule);
// Whether its timesteps are spaced as diffusers' "leading" (FirstNoise::leading).
bool spaced_leading(const LevelsOfRun& run, const Discretisation& levels);
// The schedule's levels as the dialect runs this sampler on them: with the last but one dropped, or
// the range for `strength`. Throws Error.
std::vector<double> levels_of_run(const LevelsOfRun& run, const Discretisation& levels);

// The level that data is noised to, if it is another than the first of a run with strength: the web
// UI's samplers of timesteps begin at the timestep before it. Throws Error.
std::optional<double> noise_level_of_run(const LevelsOfRun& run, const Discretisation& levels);
// DenoiserOptions::timesteps_apart of a network with these levels: 1 where the dialect rounds to
// integers, more for the web UI's LCM.
int64_t timesteps_apart(std::string_view dialect, std::string_view sampler,
                        const Discretisation& levels);

// Sets what follows from the network's levels: space, table, round_sigma, first_sigma.
void fit_to_network(SampleCall& call, const Discretisation& levels);

// As levels_of_run, but throws Error if there is no step.
std::vector<double> levels_with_steps(const LevelsOfRun& run, const Discretisation& levels);

}  // namespace ebb
