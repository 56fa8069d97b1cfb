// Activations by their names, as attributes and formulas have them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ir/expr.h"

namespace ebb {

struct Activation {
  std::string name;
  Scalar (*of)(const Scalar& x);
};

// silu, gelu (of the error function), gelu_tanh, gelu_quick (x sigmoid(1.702 x)), relu, sigmoid,
// tanh, none.
const std::vector<Activation>& activations();

// Throws Error with the nearest name.
Scalar activation(std::string_view name, const Scalar& x);

}  // namespace ebb
