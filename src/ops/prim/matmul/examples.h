// Examples of matmul, and the epilogues that kernels have, as tests write them.
#pragma once

#include <vector>

#include "ir/epilogue.h"
#include "ir/op.h"

namespace ebb::ops {

std::vector<Example> matmul_examples();

// With z = products + bias, if there is one: act(z), or of an act of two inputs, of the halves of
// z's columns; with `keep`, z is a second result.
Epilogue activation_epilogue(const Expr& act, bool bias, bool keep);
// z act'(y) for a last operand y.
Epilogue activation_grad_epilogue(const Expr& act, bool bias);
// residual + factors z: the last two operands; the factors begin at a column.
Epilogue scaled_epilogue(bool bias, int64_t column);

}  // namespace ebb::ops
