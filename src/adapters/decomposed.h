// Weight-decomposed adapters (DoRA, Liu et al. 2024, arXiv:2402.09353, equation 5): a changed
// weight V = W + change has the lengths of its rows from the adapter, its magnitude,
//   W' = magnitude * V / |V|,
// a row being all that one output reads. It goes with each kind that is a change of the weight.
#pragma once

#include <vector>

#include "adapters/kind.h"

namespace ebb::adapters {

// The magnitude's roles in files: FileModule::magnitude, and PEFT's.
const std::vector<AdapterKind::Role>& magnitude_roles();
// As files of these names have that of a weight: [out,1,...] of kohya's, [out] of PEFT's, of
// filters [1,out,1,...].
Shape magnitude_shape(const Shape& weight, FileNames names);

// By what rows of this length are multiplied to have that magnitude, the two of one shape; with
// LyCORIS's addend 2^-23, so that rows of zeros stay.
Value magnitude_scale(Value magnitude, Value length);

// The root of the sum of squares over these dimensions, which stay as 1.
Value lengths(Value v, const std::vector<int64_t>& over);
// |W + change| of each row, f32 [out,1,...], of weights [out,...]; before: |W|, of that shape. Of a
// change of low rank (passes/contractions/distribute_products.h) as
//   sqrt(|W|^2 + 2 <W, d> + <d, d>),
// which takes thin products alone: nothing of the weight's size is written, and W may be in 16
// bits. It is a difference where a change takes a row away, and products in bf16 may make it
// anything near 0: so it is |W| / 32 at least, about what their rounding comes to, and a row is
// never scaled by more than 32 of its magnitude over |W|.
Value changed_lengths(Value weight, Value change, Value before);
// |W| of each row, f32 [out], summed in f64.
Tensor row_lengths(const Tensor& weight);

}  // namespace ebb::adapters
