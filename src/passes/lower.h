// lower: composite ops decompose until the backend has a kernel for every node.
#pragma once

#include <functional>

#include "ir/op.h"

namespace ebb {

// Replaces every node that `keep` refuses: a pointwise op by the primitive `pointwise`, a composite
// op by its decomposition, repeatedly. Throws Error for a refused primitive.
Graph lower(const Graph& g, const std::function<bool(const Signature&)>& keep);

}  // namespace ebb
