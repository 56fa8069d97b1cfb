// spatial_fusion: reductions over the pixels of images fuse with the pointwise work around them.
#pragma once

#include <functional>

#include "ir/op.h"

namespace ebb {

// On a fused graph. Forms one spatial fusion of
// - a group norm: its statistics, the per-channel coefficients and the expressions that apply them;
// - the gradient of one: its sums over pixels, the coefficients and the expression of the result;
// and, with either, further sums over the pixels of the same images and the cheap expressions that
// produce their operands, where `supports` says that the device has a kernel. `layer_boundaries`:
// producers of another layer are not fused, as in fuse_rows.
Graph fuse_spatial(const Graph& g, const std::function<bool(const Signature&)>& supports,
                   bool layer_boundaries = false);

}  // namespace ebb
