// fuse: pointwise work melts into the pointwise work and the reductions that read it.
#pragma once

#include "ir/graph.h"

namespace ebb {

// What a device makes cheap; see Device.
struct FuseCosts {
  double flops_per_pass = 24;
  bool rows_once = false;
  bool rows_joined = false;  // join_rows follows
};

// On a lowered graph. A `pointwise` all of whose readers are `pointwise` or `reduce` nodes of the
// same shape is computed inside them, if that moves no more memory than before and what is computed
// again costs less than it saves; with rows_once also one that has a number for each row of its
// readers. Nodes that read the same tensors at the same place become one node with several results.
Graph fuse(const Graph& g, const FuseCosts& costs);

}  // namespace ebb
