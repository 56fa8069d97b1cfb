// The functions of Expr as PTX sequences in f32.
#pragma once

#include "backend/cuda/ptx/ptx.h"
#include "ir/expr.h"

namespace ebb::cuda {

// How exact a function must be: to a few units in the last place of f32, or enough for a result
// that is rounded to 16 bits (still 1e-6; no care for subnormal numbers).
enum class Precision : uint8_t { full, narrow };

// op(a, b, c); arguments that the op does not take are ignored. Infinities and NaN give what
// evaluate() of ir/expr.h gives.
Operand write_op(Ptx& p, ScalarOp op, std::span<const Operand> x, Precision precision);

// a < b ? yes : no
Reg write_select_less(Ptx& p, std::span<const Operand> comparison, const Operand& yes,
                      const Operand& no);

// Instructions of one evaluation, about.
int instructions_of(ScalarOp op, Precision precision);

}  // namespace ebb::cuda
