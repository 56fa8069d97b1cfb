// mixed_precision: matmuls and convolutions in 16 bits, losses in f32; parameters stay f32 masters.
#pragma once

#include "ir/graph.h"

namespace ebb {

// What becomes of a 16-bit activation to which a parameter in f32 is added, or the like. In f32 the
// result of the two is f32, as under PyTorch's autocast: training keeps what follows (the residual
// stream of a transformer with position embeddings) in f32. `rounded`: the parameter is rounded to
// the activation's dtype, as where the whole network was cast: what follows takes half the bytes.
enum class Parameters : uint8_t { in_f32, rounded };

// On a forward graph, before gradients: casts the float inputs of ops of precision `low` to
// `dtype`, those of precision `full` to f32. f32: returns g.
Graph mixed_precision(const Graph& g, DType dtype, Parameters parameters = Parameters::in_f32);

}  // namespace ebb
