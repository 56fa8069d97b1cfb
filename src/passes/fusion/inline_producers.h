// inline_producers: pointwise nodes become part of the pointwise nodes and reductions that read
// them, computed again in each.
#pragma once

#include "ir/graph.h"

namespace ebb {

// What the device makes cheap; see Device.
struct InlineCosts {
  double flops_per_pass = 24;
  bool hoists_row_scalars = false;
};

// On a lowered graph. A pointwise node is inlined into its readers if all of them are pointwise or
// reduce nodes of the same shape, and no more bytes move than before; if there are several readers,
// fewer bytes, and the recomputed flops cost less than the passes saved: fuse_loops may compute it
// once for all of them. Of a node with several results, one alone if all cannot be. With
// hoists_row_scalars, a node with one value per row is also inlined into nodes that iterate over
// those rows.
Graph inline_producers(const Graph& g, const InlineCosts& costs);

}  // namespace ebb
