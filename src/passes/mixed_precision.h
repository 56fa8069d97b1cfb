// mixed_precision: matmuls and convolutions in 16 bits, losses in f32; parameters stay f32 masters.
#pragma once

#include "ir/graph.h"

namespace ebb {

// On a forward graph, before gradients: casts the float inputs of ops of precision `low` to
// `dtype`, those of precision `full` to f32. f32: returns g.
Graph mixed_precision(const Graph& g, DType dtype);

}  // namespace ebb
