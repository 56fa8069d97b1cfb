// LoRAs of a run: named by flags and in prompts, found, opened and applied to a checkpoint's parts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "adapters/adapters.h"
#include "pipeline/checkpoint_parts.h"
#include "text/prompt.h"

namespace ebb {

struct LoraChoice {
  std::string file;
  double strength = 1;                    // on the U-Net
  double text_strength = 1;               // on the text encoders
  std::string blocks = {};                // "1,0,0.5,...", as adapters::BlockWeights; "": 1 for all
  std::string named_by = "lora: --lora";  // for errors
};

// "FILE", "FILE:strength", "FILE:strength:text strength", each perhaps with ":lbw=1,0,..." behind
// it; several are parted by ";". Throws Error, naming the flag.
std::vector<LoraChoice> parse_loras(std::string_view text, std::string_view flag = "--lora");

// The file of a tag: the one in the folder, or below it, whose path without its ending is the name,
// or else whose stem is. Throws Error with the nearest name.
LoraChoice find_lora(const text::LoraTag& tag, const std::string& folder);

// Those of the flags, then those that the prompt names. Opens the files and checks what they say.
// Throws Error.
std::vector<adapters::AdapterUse> open_loras(const std::vector<LoraChoice>& choices);

// The networks that a LoRA may change.
std::vector<adapters::Network> networks_of(const LoadedModel& denoiser,
                                           const std::vector<EncoderRule>& encoders);

// The refiner, and its text encoders where those are not the first network's.
std::vector<adapters::Network> refiner_networks(const CheckpointParts& parts,
                                                const std::vector<EncoderRule>& encoders,
                                                const std::vector<EncoderRule>& refiner_encoders);

}  // namespace ebb
