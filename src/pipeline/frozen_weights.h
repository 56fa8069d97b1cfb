// Frozen weights in 8 bits under what is trained (ebb train --frozen-weights q8).
#pragma once

#include <functional>
#include <string_view>

#include "ir/graph.h"

namespace ebb {

// `g`, a loss of adapters or of other networks, with its frozen weights in 8 bits: those that
// products alone read in `loss`, which is the same without adapters. `say`, if any, is told how
// many, and which matrices stay as they are. Throws Error where none can be kept so.
Graph frozen_in_8_bits(const Graph& g, const Graph& loss,
                       const std::function<void(std::string_view)>& say);

}  // namespace ebb
