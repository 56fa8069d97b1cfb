#include "pipeline/image_beside.h"

#include <algorithm>

#include "base/error.h"
#include "models/family.h"
#include "pipeline/inpaint_image.h"

namespace ebb {

int64_t channels_beside(const LoadedModel& m) {
  const auto known = m.model->conditions(m.config);
  const auto c = std::ranges::find(known, nn::concat_image, &nn::Condition::name);
  return c == known.end() ? 0 : c->shape[2];
}

void check_beside(const LoadedModel& m, bool masked, const CheckpointParts& parts) {
  const Beside beside = beside_of(m.config);
  require(beside != Beside::depth_map,
          "generate: the network takes a depth map beside its latents, which nothing here makes; "
          "Stable Diffusion 2's own checkpoint needs none");
  require(beside != Beside::unknown, "generate: the network takes ", channels_beside(m),
          " channels beside its latents, and nothing here makes them");
  require(beside == Beside::nothing || masked || parts.autoencoder,
          "generate: a network that was trained to inpaint takes the latents of a picture, and the "
          "checkpoint has no autoencoder that makes them; --vae FILE names one");
}

void add_unmasked(RunPass& pass, const LoadedModel& m) {
  if (beside_of(m.config) != Beside::mask_and_image) return;
  const int64_t factor = m.model->latents(m.config)->factor;
  pass.modes.push_back(unmasked_mode(
      {.height = pass.request.sample[0] * factor, .width = pass.request.sample[1] * factor},
      pass.request));
}

}  // namespace ebb
