// fuse_loops: what iterates over one space is computed in one pass: reductions with the pointwise
// work around them, so that a norm, its gradient or a softmax reads its operands once, and
// pointwise nodes or reductions that read the same tensors. loop_space.h has what nodes are in a
// space, node_groups.h the groups that become one node.
#pragma once

#include <functional>

#include "ir/op.h"

namespace ebb {

struct FuseLoops {
  std::function<bool(const Signature&)> supports;  // whether there is a kernel
  // No values of another layer are computed in a loop for its operands.
  bool layer_boundaries = false;
  bool reductions = true;  // else only what becomes `pointwise` or `reduce`: loops have no kernels
};

// Nodes that are parts of one iteration space become one node: first those with reductions over
// pixels and groups of channels, then those along rows, each a `loop`, then those without, a
// `pointwise`, and reductions alone, a `reduce`. What a node may be part of is its op's LoopForm.
Graph fuse_loops(const Graph& g, const FuseLoops& how);

}  // namespace ebb
