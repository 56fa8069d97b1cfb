// What a request leaves open, as the checkpoint has it: sampler, schedule, steps and guidance.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "pipeline/checkpoint_parts.h"
#include "pipeline/request.h"

namespace ebb {

// What the sampler `auto` is where the checkpoint says no other.
inline constexpr std::string_view default_sampler = "dpmpp_2m";

// What text to image runs with where nothing says otherwise.
inline GenerateOptions usual_text_to_image() {
  return {.steps = 20, .sampler = "auto", .guidance = 7, .steps_open = true, .guidance_open = true};
}

// A line each, for the user.
struct ChoiceTexts {
  std::vector<std::string> warnings = {};
  std::vector<std::string> notes = {};  // what was chosen, and how to choose otherwise
};
// A file may say the guidance that suits it. A folder of diffusers says its sampler and its levels,
// in its own dialect; that it is a latent consistency model counts in all of them. Throws Error for
// options that cannot be parsed.
ChoiceTexts choose_open(GenerateOptions& options, const CheckpointParts& parts);

}  // namespace ebb
