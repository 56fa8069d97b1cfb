// What the norms built on `moments` share: their inputs, types and the one expression.
#pragma once

#include <span>
#include <vector>

#include "ops/prim/moments/op.h"

namespace ebb::ops {

// x, then gamma and beta where given. Throws Error on a beta without gamma.
std::vector<Value> norm_inputs(Value x, Value gamma, Value beta);
// The type of x. Throws Error unless gamma and beta are [C] and `groups` divides C.
std::vector<Type> infer_norm(const Signature& s, int64_t groups);
// (x - mean) * (rstd * gamma) + beta as one expression on x's shape: the statistics stay small
// tensors, and what follows fuses with it.
Value normalize(std::span<const Value> in, const Moments& over, double eps);

}  // namespace ebb::ops
