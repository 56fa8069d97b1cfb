// fuse_horizontally: independent nodes that do the same to other tensors become one node, which is
// one launch.
#pragma once

#include <functional>

#include "ir/op.h"

namespace ebb {

// Which nodes may become one, and what, their ops say (OpDef::together); `supports` says whether
// the device has a kernel for it. Nodes that depend on parameters only are hoisted to the front
// first, where more of them can fuse. Nodes that rename a value move to where it is made, so that
// they stand between no two that fuse.
Graph fuse_horizontally(const Graph& g, const std::function<bool(const Signature&)>& supports);

}  // namespace ebb
