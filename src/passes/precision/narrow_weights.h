// narrow_weights: operands of GEMMs and convolutions are read as files have them, in 16 bits.
#pragma once

#include <functional>

#include "ir/graph.h"

namespace ebb {

// An operand of an op of low precision (OpDef::operands) that is widened from weights is read as it
// was before, where the op allows that and a kernel supports it: the kernel widens it for as long
// as it runs, and the weight takes half the memory. Where another kind of node reads the widened
// numbers, too, they stay for that.
// as_stored: whether the numbers of a weight are those that it is stored with; others, as those of
// adapters, would be rounded.
Graph narrow_weights(const Graph& g, const std::function<bool(const Source&)>& is_weight,
                     const std::function<bool(const Source&)>& as_stored,
                     const std::function<bool(const Signature&)>& supported);

}  // namespace ebb
