// Strided views: which ops have them, and views as values of a graph, of which decompositions and
// gradients of these ops are made.
#pragma once

#include "ir/op.h"
#include "ir/strided_view.h"

namespace ebb::ops {

// The attributes of a use that reads and writes through these views; none: it cannot.
using Viewed = std::optional<Attrs> (*)(const Signature&, const UseViews&);
// Of an op that has views; null: it reads and writes whole tensors, or has views of its own kind.
Viewed viewed(const OpDef& op);

// Of a use whose result is its operand with the dims in another order: that order. None of others.
std::optional<std::vector<int64_t>> permutation(const Signature& s);

// Both throw Error unless the view is slices and permutations of some shape of the tensor.

// The view of `tensor`.
Value strided(Value tensor, const StridedView& view);
// A tensor of `shape` that has the elements of x where the view has them, and zeros elsewhere.
Value unstrided(Value x, const StridedView& view, const Shape& shape);

}  // namespace ebb::ops
