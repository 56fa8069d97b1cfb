// What tests of generated kernels write expressions with.
#pragma once

#include "ir/expr.h"

namespace ebb::testing {

constexpr int capability = 90;  // that kernels are written for: sm_90

inline Scalar in(int64_t i) { return Scalar::input(i); }
inline Scalar silu(const Scalar& x) { return x * sigmoid(x); }

}  // namespace ebb::testing
