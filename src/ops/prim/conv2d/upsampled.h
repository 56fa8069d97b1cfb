// Convolutions of upsampled images, computed of the images before.
#pragma once

#include <optional>

#include "ir/contraction.h"

namespace ebb::ops {

// A convolution of images that `producer` enlarged `up` times by repeating pixels multiplies each
// of them by several of its weights. It is the transposed convolution of the images before, of
// stride `up`, with the sums of these weights, made in f32: for 3x3 weights and up = 2, 4 products
// of a pixel in place of 9, and images of a quarter of the size. None of other convolutions, and
// where products would not be fewer.
std::optional<Contraction::Folded> conv2d_of_upsampled(const Signature& conv,
                                                       const Signature& producer);

}  // namespace ebb::ops
