// Masks as pictures: what is generated, what of the picture stays, and how both are put together.
// The rules are those of AUTOMATIC1111's web UI where nothing else is said.
#pragma once

#include <optional>

#include "core/tensor.h"
#include "models/model.h"

namespace ebb {

// Masks are u8 [H,W,1]: 255 is generated, 0 stays.

Tensor inverted(const Tensor& mask);
// By a Gaussian of this deviation, cut off behind 2.5 of them; 0: the mask itself.
Tensor blurred(const Tensor& mask, int64_t deviation);

// Pixels of a picture.
struct Region {
  int64_t left = 0, top = 0, width = 0, height = 0;
  bool operator==(const Region&) const = default;
};
// What is not 0, with `padding` pixels around it as far as there are any. Throws Error for a mask
// of nothing.
Region masked_region(const Tensor& mask, int64_t padding);
// Grown to the ratio of `run`, within a picture of `image`; where that is too small, as far as it
// goes.
Region of_ratio(const Region& region, ImageSize run, ImageSize image);
Tensor cropped(const Tensor& picture, const Region& region);  // u8 [h,w,C]

// u8 [H,W,3] with the masked part filled by the colours around it: blurred versions of the rest, of
// a deviation of 256 pixels down to 2, one over the other. The web UI's bytes.
Tensor filled(const Tensor& picture, const Tensor& mask);

// Where an inpainting run's mask comes from in latents.
enum class LatentMaskRule : uint8_t {
  rounded_bicubic,   // A1111
  nearest,           // diffusers, of a mask of 0 and 1
  bilinear,          // ComfyUI: four pixels around the middle of a latent, not rounded
  rounded_bilinear,  // that rounded, a half to 0: ComfyUI's for networks trained to inpaint
};
// f32 [1,h,w,1] in [0,1]: 1 is generated.
Tensor latent_mask(const Tensor& mask, ImageSize latents, LatentMaskRule rule);

// `pixels` f32 [H,W,3] in [-1,1] where the mask is 255, `picture` u8 where it is 0, a mixture
// between.
Tensor overlaid(const Tensor& pixels, const Tensor& picture, const Tensor& mask);

}  // namespace ebb
