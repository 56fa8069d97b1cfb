// rows: sums along rows and the pointwise work on the same rows become one piece of work.
#pragma once

#include <functional>

#include "ir/op.h"

namespace ebb {

// On a fused graph. Sums and maxima over the last dim, the statistics of layer norms, the formulas
// that take them, and what else reads or makes the same rows become one `rows` node, where that
// reads or writes less and `serves` says that the device has a kernel. With `apart`, what made
// the rows is not taken in from another layer (so that blocks of the network stay what they are to
// recompute).
Graph join_rows(const Graph& g, const std::function<bool(const Signature&)>& serves,
                bool apart = false);

}  // namespace ebb
