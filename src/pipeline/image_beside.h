// What networks take beside their latents: a mask and a picture, a picture to edit, a depth map.
#pragma once

#include "pipeline/checkpoint_parts.h"
#include "pipeline/run_mode.h"

namespace ebb {

// Channels of it; 0: none.
int64_t channels_beside(const LoadedModel& m);
// Throws Error where nothing makes what the network takes.
void check_beside(const LoadedModel& m, bool masked, const CheckpointParts& parts);
// For every pass of a network that was trained to inpaint, where there is no mask.
void add_unmasked(RunPass& pass, const LoadedModel& m);

}  // namespace ebb
