// narrow_weights: GEMMs and convolutions read weights as they are stored, in 16 bits.
#pragma once

#include <functional>

#include "ir/graph.h"

namespace ebb {

// A weight that is widened for a matmul or a convolution alone is read as it was before, where a
// kernel supports that: the kernel widens it for as long as it runs, and the weight takes half the
// memory for 4 % of the time (a denoiser on two cores).
Graph narrow_weights(const Graph& g, const std::function<bool(const Source&)>& is_weight,
                     const std::function<bool(const Signature&)>& supported);

}  // namespace ebb
