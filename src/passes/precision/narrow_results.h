// narrow_results: values are rounded where they are made.
#pragma once

#include <functional>

#include "ir/op.h"

namespace ebb {

// Whether two uses are in one cost class on the device.
using SameClass = std::function<bool(const Signature&, const Signature&)>;

// On a lowered graph, before fuse_epilogues. A value that nothing reads but a cast to a narrower
// float, perhaps behind ops that rename or copy, has that dtype from the start, if it is made by an
// expression, or by a contraction that gives it. So the cast is gone, which inline_producers()
// could not take past another shape, a concatenation or into a GEMM.
Graph narrow_results(const Graph& g, const SameClass& same_class);

}  // namespace ebb
