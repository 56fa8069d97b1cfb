// horizontal_fusion: independent pointwise nodes with the same expression become one multi-tensor
// node.
#pragma once

#include "ir/graph.h"

namespace ebb {

// Hundreds of weight updates and casts become a few launches. Nodes with more elements than it
// takes to fill a device are left alone, so that no large value lives longer. Nodes that depend on
// parameters only are hoisted to the front first, where more of them can fuse. Nodes that rename a
// value move to where it is made, so that they stand between no two that fuse.
Graph fuse_horizontally(const Graph& g);

}  // namespace ebb
