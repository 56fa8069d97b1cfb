// Activations that epilogues of kernels know, and what they are recognised by.
#pragma once

#include <optional>

#include "ir/expr.h"

namespace ebb::ops {

// x sigmoid(linear x + cubic x^3), as SiLU and GELU with a tanh are, or GELU with an error
// function.
struct Gate {
  double linear = 1, cubic = 0;
  bool erf = false;
  size_t of = 0;  // the input that is activated; another is multiplied by that
};

// All match by structure (ir/normal_form.h), coefficients to the rounding of 64-bit floats.
// If the expression is an activation of its one input, or of two inputs and one times an activation
// of the other.
std::optional<Gate> gate_of(const Expr& e);
// If the expression is x0 act'(x1) for an activation, as gradient rules write it.
std::optional<Gate> gate_gradient_of(const Expr& e);

Scalar activated(const Gate& g, const Scalar& x);

}  // namespace ebb::ops
