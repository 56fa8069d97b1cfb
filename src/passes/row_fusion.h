// row_fusion: reductions over the last dim fuse with the pointwise work on the same rows.
#pragma once

#include <functional>

#include "ir/op.h"

namespace ebb {

// On a fused graph. Sums and maxima over the last dim, the statistics of layer norms, the
// expressions that use them, and further nodes that read or produce the same rows become one row
// fusion where that moves fewer bytes and `supports` says that the device has a kernel.
// `layer_boundaries`: producers of another layer are not fused, so that blocks of the network stay
// separable for recompute.
Graph fuse_rows(const Graph& g, const std::function<bool(const Signature&)>& supports,
                bool layer_boundaries = false);

}  // namespace ebb
