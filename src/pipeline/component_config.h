// What diffusers' config.json beside a component's weights says that its tensors do not.
#pragma once

#include <string>

#include "models/model.h"

namespace ebb {

// Sets the heads of attention and the side of the pictures (latents, "sample_size") of a U-Net, or
// the heads and the activation of a text encoder, whose weights are that file; what the config
// lacks stays, as all does without one, and so does the side where it says none that is square and
// plausible. diffusers' "attention_head_dim" of a U-Net is the number of heads. Returns whether it
// says heads. Throws Error for what the network cannot be.
bool take_config(const Model& model, ModelConfig& config, const std::string& weights);

}  // namespace ebb
