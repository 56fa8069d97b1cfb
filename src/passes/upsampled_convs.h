// upsampled_convs: convolutions of upsampled images read the images as they were before.
#pragma once

#include <functional>

#include "ir/op.h"

namespace ebb {

// On a lowered graph whose weights are prepared (passes/prepare.h). A convolution of images that
// were enlarged `up` times by repeating pixels multiplies each of them by several of its weights.
// It becomes the transposed convolution of the images before, of stride `up`, with the sums of
// these weights: for 3x3 weights and up = 2, 4 products of a pixel in place of 9, and images of a
// quarter of the size. The weights must depend on weights only: they are summed once, in f32.
// `supports(conv, transposed)`: the device has as good a kernel for the second.
Graph transpose_upsampled_convs(
    const Graph& g, const std::function<bool(const Source&)>& is_weight,
    const std::function<bool(const Signature&, const Signature&)>& supports);

}  // namespace ebb
