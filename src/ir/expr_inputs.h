// Dependencies of an expression's results and instructions.
#pragma once

#include <vector>

#include "ir/expr.h"

namespace ebb {

// By input: whether one of the results [first, last) depends on it.
std::vector<bool> inputs_of(const Expr& e, size_t first, size_t last);

// The first `count` inputs, and all of an expression, as apply() takes them.
std::vector<Scalar> inputs_as_scalars(int64_t count);
std::vector<Scalar> inputs_as_scalars(const Expr& e);

// The operands of an instruction, as many as its op has arguments.
std::vector<int32_t> arguments_of(const Expr::Instruction& i);

// op(arguments), of one to three.
Scalar scalar_of(ScalarOp op, std::span<const Scalar> arguments);

}  // namespace ebb
