// backward: the function that gives the gradients of another one.
#pragma once

#include "functions/function.h"

namespace ebb::functions {

// "<name>_backward". Operands: "grad_<result>" each, absent for none; the results, if f has a rule
// of its own for the gradients; then f's own. Attributes: f's, then `needs`, whose bits are the
// operands of which it gives the gradients, in that order and in their dtypes.
Function backward(const Function& f);

}  // namespace ebb::functions
