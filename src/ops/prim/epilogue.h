// The epilogue of GEMMs and convolutions: what is added to their sums before they are rounded.
// docs/epilogues.md says who makes it.
#pragma once

#include <optional>
#include <vector>

#include "ir/kernel.h"

namespace ebb::ops {

// The inputs behind the two operands: perhaps a bias [C], then perhaps a residual, of the result's
// shape or [N,1,...,1,C]: a row for each image. They may be of any float dtypes.
struct Epilogue {
  std::optional<size_t> bias, residual;  // positions among the inputs
  int64_t rows = 1;                      // of the result that share a row of the residual
};
// For a result of this shape. Throws Error in the name of the signature's op.
Epilogue epilogue_of(const Signature& s, const Shape& result);
Epilogue epilogue_of(const Signature& s);  // the output types are known
// Whether a use that has none could have a residual of this type.
bool takes_residual(const Signature& s, const Type& residual);

// Where a run's bias or residual is, or null.
inline const void* address_of(const std::optional<size_t>& input, const Call& c) {
  return input ? c.in[*input] : nullptr;
}

// reference: adds bias and residual to the sums.
void add_epilogue(const Signature& s, std::span<const RefArray> in, RefArray& out);
// decompose, where a device has no kernel that takes a residual, or a bias: the GEMM in f32, then
// the sum.
std::vector<Value> without_residual(Graph& g, const Signature& s, const Attrs& in_f32,
                                    std::span<const Value> in);
// vjp: the gradient of the residual, for that of the result.
Value residual_gradient(Value residual, Value dy);

}  // namespace ebb::ops
