// inlined: a graph of gradients as part of another one, in the dtypes that a caller wants.
#pragma once

#include <span>
#include <vector>

#include "ir/graph.h"

namespace ebb::functions {

// The outputs of `from`, computed in `into` from `sources` in place of its own, and cast to
// `dtypes`. Training's steps keep gradients of weights in f32: a product that is then rounded is
// rounded where it is made, and what is summed over one row is not summed.
std::vector<Value> inlined(const Graph& from, Graph& into, std::span<const Value> sources,
                           std::span<const DType> dtypes);

}  // namespace ebb::functions
