// Strided views as values of a graph, of which decompositions and gradients of the ops that have
// views are made.
#pragma once

#include "ir/op.h"
#include "ir/strided_view.h"

namespace ebb::ops {

// Both throw Error unless the view is slices and permutations of some shape of the tensor.

// The view of `tensor`.
Value strided(Value tensor, const StridedView& view);
// A tensor of `shape` that has the elements of x where the view has them, and zeros elsewhere.
Value unstrided(Value x, const StridedView& view, const Shape& shape);

}  // namespace ebb::ops
