// gelu_tanh: gelu with a tanh in place of the erf: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
// (Hendrycks and Gimpel 2016).
#pragma once

#include "ir/op.h"

namespace ebb::ops {

namespace def {
const OpDef& gelu_tanh();
}

// gelu_tanh(x) = x/2 (1 + tanh(outer (x + inner x^3))).
struct GeluTanh {
  static constexpr double outer = 0.7978845608028654;  // sqrt(2/pi)
  static constexpr double inner = 0.044715;
};

Value gelu_tanh(Value x);

}  // namespace ebb::ops
