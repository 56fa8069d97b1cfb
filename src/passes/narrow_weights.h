// narrow_weights: GEMMs and convolutions read weights as they are stored, in 16 bits.
#pragma once

#include <functional>

#include "ir/graph.h"

namespace ebb {

// A weight that is widened for a matmul or a convolution alone is read as it was before, where
// supports(node with the wide weight, node with the narrow one) says that this is as fast: the
// kernel widens what it packs anyway, and the weight takes half the memory.
Graph narrow_weights(const Graph& g, const std::function<bool(const Source&)>& is_weight,
                     const std::function<bool(const Signature&, const Signature&)>& supports);

}  // namespace ebb
