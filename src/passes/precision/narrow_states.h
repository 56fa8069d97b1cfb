// narrow_states: states that a graph reads in 16 bits alone are kept in 16 bits.
#pragma once

#include "ir/graph.h"

namespace ebb {

// A state in f32 that nothing updates, and that is cast to `dtype` wherever it is read, also as a
// part of a concatenation or in another shape, becomes a source of that dtype: half the memory, and
// no cast in each step. What a step computes keeps its bits. On a graph of mixed_precision(),
// before gradients: weights that stay as they are while others are trained. f32: returns g.
Graph narrow_states(const Graph& g, DType dtype);

}  // namespace ebb
