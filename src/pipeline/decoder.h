// Decoder: the stage behind a denoiser, from what it makes to pixels.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "models/model.h"

namespace ebb {

struct Decoder {
  std::string name;
  // f32 [N,H,W,C] in [-1,1] of samples f32 [N,h,w,c], whose memory it may take.
  std::function<Tensor(Tensor samples)> decode;
};

// The identity, clipped to [-1,1], of networks that work on pixels; none of those that work on
// latents, which need an autoencoder (pipeline/latent_decoder.h), or on other than 1 or 3 channels.
std::optional<Decoder> decoder_of(const Model& model, const ModelConfig& config);
// What a model makes that has no decoder: "latents [32,32,4] of Stable Diffusion's autoencoder".
std::string samples_text(const Model& model, const ModelConfig& config);

// u8 [N,H,W,C] from f32 in [-1,1], rounded.
Tensor to_pixels(const Tensor& images);
// [N,C,H,W] from f32 [N,H,W,C].
Tensor channels_first(const Tensor& images);
// One image of a batch, [H,W,C].
Tensor image_at(const Tensor& images, int64_t index);
// [N,H,W,C] of images f32 [H,W,C] of one size.
Tensor stacked(const std::vector<Tensor>& images);

}  // namespace ebb
