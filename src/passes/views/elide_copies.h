// elide_copies: copies along the last dim become views, which loops read and write in place. What
// finds them is in files of its own: operand_views.h, strided_views.h; viewed_graph.h keeps what
// was found until the graph is made anew.
#pragma once

#include <functional>

#include "ir/op.h"

namespace ebb {

// On a fused graph; `supports` says that the device has a kernel for a node in its new form.
// What only copies is known by OpDef::copy: slices, splits, concatenations. Swaps of runs, the
// partners of a rotation, are such, and are read in place by loops if nothing else reads them.
// Segments, several tensors side by side:
// - A result that only slices tiling its last dim read is written as those slices.
// - A concatenation that only loops read is never made: they read its segments.
// - A concatenation that a loop reads first, and others later, is written by that loop.
// Strided views (ir/strided_view.h), in front of and behind ops that have them:
// - Permutations and slices that only such ops read are never made.
// - A result that one permutation moves, and such ops read, is written as the permutation has it.
// - All results of a use that are concatenated are written as ranges of the concatenation.
// Columns of a wider tensor:
// - A slice that only loops read is never made: they read its columns.
// - A concatenation of one loop's results of one type is written by that loop.
// - A concatenation of the same expression of one tensor each is that expression of its segments.
Graph elide_copies(const Graph& g, const std::function<bool(const Signature&)>& supports);

}  // namespace ebb
