#include "ir/activations.h"

#include <cmath>
#include <numbers>

#include "base/names.h"

namespace ebb {

const std::vector<Activation>& activations() {
  static const std::vector<Activation> table = {
      {"silu", [](const Scalar& x) { return x * sigmoid(x); }},
      {"gelu", [](const Scalar& x) { return 0.5 * x * (1.0 + erf(std::sqrt(0.5) * x)); }},
      {"gelu_tanh",
       [](const Scalar& x) {
         const double outer = std::sqrt(2 / std::numbers::pi), inner = 0.044715;
         return 0.5 * x * (1.0 + tanh(outer * x * (1.0 + inner * x * x)));
       }},
      {"gelu_quick", [](const Scalar& x) { return x * sigmoid(1.702 * x); }},
      {"relu", [](const Scalar& x) { return max(x, 0.0); }},
      {"sigmoid", [](const Scalar& x) { return sigmoid(x); }},
      {"tanh", [](const Scalar& x) { return tanh(x); }},
      {"none", [](const Scalar& x) { return x; }},
  };
  return table;
}

Scalar activation(std::string_view name, const Scalar& x) {
  return find_known("activation: unknown name", name, activations(), &Activation::name).of(x);
}

}  // namespace ebb
