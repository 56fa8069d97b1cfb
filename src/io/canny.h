// Edges of images (Canny 1986), pixel for pixel as OpenCV's Canny finds them.
#pragma once

#include "core/tensor.h"

namespace ebb::io {

// Of the gradient |dx| + |dy| by Sobel's 3x3 filters: edges start above `high` and go on above
// `low`.
struct Canny {
  int low = 100, high = 200;
};

// u8 [H,W,1], 255 on edges, else 0, of u8 [H,W,C]; of several channels each pixel takes the one
// with the largest gradient. Throws Error.
Tensor canny(const Tensor& image, const Canny& options);

}  // namespace ebb::io
