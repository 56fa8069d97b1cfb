// `scheduler/scheduler_config.json` of diffusers' folders: what a network was trained to predict,
// and how timesteps are spaced.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/options.h"

namespace ebb {

struct SchedulerConfig {
  // Fields of DiffusionConfig, by name and text.
  std::vector<std::pair<std::string, std::string>> diffusion;
  // "" where the file does not say: the scheduler's own default counts then, which differs.
  std::string spacing;
  int64_t offset = 0;
  std::optional<bool> ends_at_one = {};  // set_alpha_to_one
  bool last_is_sigma_min = false;        // final_sigmas_type
  std::string spread;                    // karras, exponential or beta; "" if none
  int64_t original_steps = 50;           // of latent consistency models
  bool edm = false;                      // EDM's schedulers have a schedule of their own:
  std::string edm_schedule = "karras";   // or exponential
  double rho = 7;
  std::string name;                        // of the scheduler's class
  std::string sampler;                     // that it is; "" if there is none
  OptionTexts sampler_options = {};        // as the file has them
  std::vector<std::string> warnings = {};  // of what is not followed
};

// What scheduler_config.json calls the betas and predictions of DiffusionConfig.
struct DiffusersBetas {
  std::string_view name, schedule;
  double start, end;  // the only ones that are implemented; cosine has none
};
constexpr DiffusersBetas diffusers_betas[] = {{"linear", "linear", 1e-4, 0.02},
                                              {"scaled_linear", "scaled_linear", 0.00085, 0.012},
                                              {"cosine", "squaredcos_cap_v2", 1e-4, 0.02}};
struct DiffusersPrediction {
  std::string_view precond, type;
};
constexpr DiffusersPrediction diffusers_predictions[] = {
    {"eps", "epsilon"}, {"v", "v_prediction"}, {"x0", "sample"}};

// Throws Error for a file that is no such JSON, and for what is not implemented.
SchedulerConfig read_scheduler_config(const std::string& path);

// The schedule, and its options as text, that diffusers' scheduler for this sampler has with such a
// file, which may have been written by another scheduler.
struct ScheduleText {
  std::string schedule, options;
  std::vector<std::string> warnings = {};
};
ScheduleText schedule_of(const SchedulerConfig& config, const std::string& sampler);

}  // namespace ebb
