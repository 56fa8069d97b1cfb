// `scheduler/scheduler_config.json` of diffusers' folders: what a network was trained to predict,
// and how timesteps are spaced.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace ebb {

struct SchedulerConfig {
  // Fields of DiffusionConfig, by name and text.
  std::vector<std::pair<std::string, std::string>> diffusion;
  // "" where the file does not say: the scheduler's own default counts then, which differs.
  std::string spacing;
  int64_t offset = 0;
  bool last_is_sigma_min = false;          // the file's set_alpha_to_one is false
  std::string spread;                      // karras, exponential or beta; "" if none
  std::vector<std::string> warnings = {};  // of what is not followed
};
// Throws Error for a file that is no such JSON, and for what is not implemented.
SchedulerConfig read_scheduler_config(const std::string& path);

// The schedule, and its options as text, that diffusers' scheduler for this sampler has with such a
// file.
struct ScheduleText {
  std::string schedule, options;
};
ScheduleText schedule_of(const SchedulerConfig& config, const std::string& sampler);

}  // namespace ebb
