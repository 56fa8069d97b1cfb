// What tests of generated kernels write expressions with.
#pragma once

#include "codegen/target.h"
#include "ir/expr.h"

namespace ebb::testing {

// That kernels are written for: like an H100.
inline const codegen::Target target{.dynamic_shared = true, .async_copy = true, .cluster = true};

inline Scalar in(int64_t i) { return Scalar::input(i); }
inline Scalar silu(const Scalar& x) { return x * sigmoid(x); }

}  // namespace ebb::testing
