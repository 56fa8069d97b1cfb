// gelu_tanh: gelu with a tanh in place of the erf: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
// (Hendrycks and Gimpel 2016).
#pragma once

#include "ir/op.h"

namespace ebb::ops {

namespace def {
const OpDef& gelu_tanh();
}

Value gelu_tanh(Value x);

}  // namespace ebb::ops
