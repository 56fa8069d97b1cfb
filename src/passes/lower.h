// lower: composite ops become simpler ones, down to what a backend runs.
#pragma once

#include <functional>

#include "ir/op.h"

namespace ebb {

// Replaces every use that `keep` refuses: pointwise ops by the primitive `pointwise`, composite ops
// by their decomposition, again until all is kept. Throws Error for a refused primitive.
Graph lower(const Graph& g, const std::function<bool(const Signature&)>& keep);

}  // namespace ebb
