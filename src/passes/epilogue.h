// epilogue: sums melt into the products and convolutions whose results they read.
#pragma once

#include <functional>

#include "ir/op.h"

namespace ebb {

// On a lowered graph, before fuse. A sum of a product that nothing else reads and of a tensor that
// is in memory anyway becomes the product with an addend (ops/prim/epilogue.h): a pass over the
// product and one over the sum less. `serves(plain, added)`: the device runs the product with its
// addend as well as it runs it without. docs/epilogues.md.
Graph add_epilogues(const Graph& g,
                    const std::function<bool(const Signature&, const Signature&)>& serves);

}  // namespace ebb
