// ResolvedRun: the levels, the sampler and their options of a run, looked up, parsed and checked
// once, from the words that name them.
#pragma once

#include <optional>
#include <string>

#include "diffusion/levels/discretisation.h"
#include "diffusion/solver/chosen_sampler.h"

namespace ebb {

struct RunWords {
  std::string command;  // for errors
  std::string sampler, schedule, options, schedule_options, dialect;
  int64_t steps = 18;
  bool steps_given = false;  // `steps` is not the default: an error where it has no meaning
  std::string usual = {};    // the schedule that the network was published with
  std::optional<double> strength = {};  // LevelsOfRun::strength, of a run that starts from data
  bool exact_steps = false;
};

struct ResolvedRun {
  ChosenSampler sampler;
  SampleCall call;  // with the levels; without progress
  // Those of the whole list, of a part of which A1111's runs are: its Brownian paths go over all.
  std::vector<double> noise_levels = {};
  std::string schedule;                  // never auto
  bool own_steps = false;                // the schedule has its own number of them
  int64_t timesteps_apart = 0;           // of the network: timesteps_apart()
  bool full_variance = false;            // StartOptions::full_variance, of a start without data
  std::optional<double> noised_at = {};  // StartOptions', of a start from data
};
// `known`: the levels of the network. Throws Error.
ResolvedRun resolve_run(const RunWords& words, const Discretisation& known);

}  // namespace ebb
