// fuse: producer-consumer fusion of pointwise nodes into pointwise nodes and reductions.
#pragma once

#include "ir/graph.h"

namespace ebb {

// What the device makes cheap; see Device.
struct FuseCosts {
  double flops_per_pass = 24;
  bool hoists_row_scalars = false;
  bool fuses_row_reductions = false;  // fuse_loops runs later
};

// On a lowered graph. A pointwise node is inlined into its readers if all of them are pointwise or
// reduce nodes of the same shape, no more bytes move than before, and the recomputed flops cost
// less than the passes saved; of a node with several results, one alone if all cannot be. With
// hoists_row_scalars, a node with one value per row is also inlined into nodes that iterate over
// those rows. Sibling nodes that read the same tensors become one node with several results.
Graph fuse(const Graph& g, const FuseCosts& costs);

}  // namespace ebb
