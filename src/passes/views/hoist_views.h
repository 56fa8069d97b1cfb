// hoist_views: before fusion, what is read through a view is computed of views. The view of a
// computed value would have to be written; one of an operand is read in place.
#pragma once

#include "ir/op.h"

namespace ebb {

// Where a value [...,C] is computed with reductions of its rows and read as [...,A,D] by
// elementwise work, or the other way round as in gradients, the former is computed as [...,A,D]
// too: its rows are the last two dims. So a norm over all heads fuses with a rotation of each.
Graph split_rows(const Graph& g);

// The swap of neighbouring runs (ops/prim/swaps.h) of a pointwise result becomes that result of
// swapped operands, where nothing but the swap and pointwise nodes reads it. So a norm fuses with
// a rotation behind it.
Graph hoist_swaps(const Graph& g);

// A concatenation of tokens (not along the last dim) of which each part is the same work along rows
// becomes that work of concatenated operands: queries of text and of images, each normalised with
// weights of its own.
Graph hoist_concats(const Graph& g);

inline Graph hoist_views(const Graph& g) { return hoist_swaps(hoist_concats(split_rows(g))); }

}  // namespace ebb
