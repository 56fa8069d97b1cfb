// The settings of a run, as text, and the run resolved from them. Settings come in any order, so
// they are resolved when the sampler is used.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/options.h"
#include "diffusion/levels/network_facts.h"
#include "diffusion/solver/run.h"

namespace ebb::capi {

// Options of a list of levels, in addition to the schedule's own.
struct ListOptions {
  double sigma_min = 0, sigma_max = 0, strength = 1;
  bool exact_steps = false;
  int64_t start_at_step = 0, end_at_step = -1;
  bool finish = false;
  void fields(auto&& f) {
    f("sigma_min", sigma_min, "smallest level above 0; 0: the usual one");
    f("sigma_max", sigma_max, "first level; 0: the usual one");
    f("strength", strength, "how much of the noise comes back, by the dialect's rule; 1: all");
    f("exact_steps", exact_steps,
      "a1111, kdiff: as many steps as requested, whatever the strength");
    f("start_at_step", start_at_step, "steps before it are left out");
    f("end_at_step", end_at_step, "so are this one and those after it; -1: none");
    f("finish", finish, "with end_at_step: the last step made goes to level 0");
  }
  void check() const;  // checks single values; throws Error
};

struct ScheduleChoice {
  std::string name;  // "": levels were given
  int64_t steps = 0;
  OptionTexts options = {}, list = {};
};

struct RunChoice {
  std::string sampler;
  OptionTexts options = {};  // of the sampler
  std::string dialect = "ebb";
  std::optional<Space> space = {};  // none: that of the network's levels
  OptionTexts network = {};         // NetworkOptions
  ScheduleChoice schedule = {};
  std::vector<double> sigmas = {};  // if there is no schedule
};

struct ResolvedRun {
  NetworkFacts network = {};
  SampleCall call = {};
  int64_t timesteps_apart = 0;           // of the network: timesteps_apart()
  bool leading = false;                  // FirstNoise::leading
  std::optional<double> noised_at = {};  // StartOptions'
};
// Throws Error for inconsistent settings.
ResolvedRun resolve(const RunChoice& choice);

}  // namespace ebb::capi
