// The functions of Expr as code in f32. They do not rely on fused multiply-add, nor on f64.
#pragma once

#include "codegen/builder.h"
#include "ir/expr.h"

namespace ebb::codegen {

// How exact a function must be: to a few units in the last place of f32, or enough for a result
// that is rounded to 16 bits (still 1e-6; no care for subnormal numbers). The same for log, whose
// results near 0 an approximation of log2 does not have.
enum class Precision : uint8_t { full, narrow };

// op(a, b, c); arguments that the op does not take are ignored. Infinities and NaN give what
// evaluate() of ir/expr.h gives. Errors, in units in the last place of f32: see math_test.cpp.
F32 write_op(ScalarOp op, std::span<const F32> x, Precision precision);

// Instructions of one evaluation, about.
int instructions_of(ScalarOp op, Precision precision);

}  // namespace ebb::codegen
