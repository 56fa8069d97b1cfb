// scaled_residuals: x + g y, with y a matmul and one row g an image, in the matmul's epilogue.
#pragma once

#include <functional>

#include "ir/op.h"

namespace ebb {

// On a lowered graph, before fuse_residuals. Where nothing else reads y or g y, the sum becomes a
// matmul_scaled, as the ends of blocks with adaLN-Zero do in sampling: y is neither written nor
// read, and what follows reads the sum alone. In training gradients read y. A row g that is a slice
// of columns is read in place. `supports(plain, fused)`: on the device both are in one cost class.
Graph fuse_scaled_residuals(
    const Graph& g, const std::function<bool(const Signature&, const Signature&)>& supports);

}  // namespace ebb
