// fuse_loops: reductions fuse with the pointwise work around them into loops, so that a norm, its
// gradient or a softmax reads its operands once.
#pragma once

#include <functional>

#include "ir/op.h"

namespace ebb {

// Nodes that are parts of one iteration space become one `loop`: first those with reductions over
// pixels and groups of channels, then those along rows. What a node may be part of is its op's
// LoopForm. `supports` says which loops have kernels. With `layer_boundaries` no values of another
// layer are computed in a loop for its operands.
Graph fuse_loops(const Graph& g, const std::function<bool(const Signature&)>& supports,
                 bool layer_boundaries);

}  // namespace ebb
