// horizontal_fusion: independent nodes that do the same to other tensors become one node, which is
// one launch.
#pragma once

#include <functional>

#include "ir/op.h"

namespace ebb {

// Hundreds of weight updates and casts become a few launches (multi_tensor_pointwise), and loops
// that differ in their sizes alone, as those of queries and keys, one (loops), where `supports`
// says that the device has a kernel for it; none: no loops. Pointwise nodes with more elements than
// it takes to fill a device and loops that stand far from each other are left alone, so that no
// large value lives longer. Nodes that depend on parameters only are hoisted to the front first,
// where more of them can fuse. Nodes that rename a value move to where it is made, so that they
// stand between no two that fuse.
Graph fuse_horizontally(const Graph& g, const std::function<bool(const Signature&)>& supports = {});

}  // namespace ebb
