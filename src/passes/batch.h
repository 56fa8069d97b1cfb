// batch: independent pointwise nodes of one formula become one node.
#pragma once

#include "ir/graph.h"

namespace ebb {

// The updates and casts of hundreds of weights become a few pieces of work. Nodes of more elements
// than a device needs to be busy stay alone, so that no large value lives longer than before.
// What is made of weights alone moves to the front, where more of it meets.
Graph batch(const Graph& g);

}  // namespace ebb
