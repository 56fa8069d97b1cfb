// Resampling of latents, by the rules of torch.nn.functional.interpolate with align_corners off,
// which programs enlarge latents by.
#pragma once

#include <string_view>
#include <vector>

#include "core/tensor.h"

namespace ebb {

enum class LatentFilter : uint8_t {
  nearest,
  nearest_exact,
  bilinear,
  bicubic,             // Keys' cubic with a = -0.75
  bilinear_antialias,  // widened where the image shrinks
  bicubic_antialias,   // likewise, with a = -0.5
};

// f32 [N,height,width,C] of f32 [N,h,w,C].
Tensor resized(const Tensor& latents, int64_t height, int64_t width, LatentFilter filter);

}  // namespace ebb
