// swaps: what reads neighbouring runs of a tensor in each other's place, as the rotation of rope
// does, reads the tensor itself through a view (ops/prim/swaps.h).
#pragma once

#include <functional>

#include "ir/op.h"

namespace ebb {

// Before fusion: the swap of a pointwise result becomes that result of swapped operands, where
// nothing but the swap and pointwise nodes reads it. So a norm fuses with a rotation behind it.
Graph hoist_swaps(const Graph& g);

}  // namespace ebb
