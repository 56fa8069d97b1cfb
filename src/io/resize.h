// Cropping and resizing of u8 images [H,W,C].
#pragma once

#include "core/tensor.h"

namespace ebb::io {

// Separable filters. When an image shrinks the filter widens with it, so that every input pixel
// counts (no aliasing). Sample centres lie at half pixels; edges repeat nothing: weights outside
// of the image are left out and the rest normalised.
enum class ResizeFilter {
  box,      // the mean over the area that the output pixel covers
  bicubic,  // Keys' cubic with a = -0.5: smoother than lanczos, as PIL's
  lanczos,  // sinc windowed by sinc, three lobes: sharper; may ring by a few grey levels
};

// Along which the image goes on at its opposite side: there no weight is left out.
struct CircularSides {
  bool y = false, x = false;
};

// u8 [height,width,C], rounded to nearest behind each axis (the width comes first), as PIL does.
// Throws Error unless `image` is u8 [H,W,C] and the sizes are positive.
Tensor resize(const Tensor& image, int64_t height, int64_t width,
              ResizeFilter filter = ResizeFilter::lanczos, CircularSides circular = {});

// That part of the image.
Tensor crop(const Tensor& image, int64_t top, int64_t left, int64_t height, int64_t width);
// The middle square of the shorter side; the odd pixel is cut from the right or the bottom.
Tensor centre_crop(const Tensor& image);

// The middle square, resized to [size,size,C].
Tensor square(const Tensor& image, int64_t size, ResizeFilter filter = ResizeFilter::lanczos);

}  // namespace ebb::io
