// operand_views: copies that only loops read, perhaps renamed in between, are not made: the loops
// read the tensor that is copied through a view.
#pragma once

#include "passes/views/viewed_graph.h"

namespace ebb {

// Slices, under any shape that has the range as a range of one dim: columns of a wider tensor, some
// heads or tokens.
void view_slices(ViewedGraph& v, const Supports& supports);
// Neighbouring runs of elements in each other's place, the partners of a rotation: two slices and
// their concatenation, under any shape.
void view_swaps(ViewedGraph& v, const Supports& supports);

// A value that is `base` with neighbouring runs of its last dim, flat, in each other's place.
struct SwapView {
  size_t node = 0;  // the concatenation
  int32_t base = -1;
  int64_t run = 0;
};
// None unless pairs of runs fill the last dim of the base.
std::optional<SwapView> swap_of(const Graph& g, int32_t v);

}  // namespace ebb
