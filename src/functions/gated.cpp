#include "functions/gated.h"

#include <utility>

#include "base/error.h"
#include "ir/activations.h"
#include "ops/prim/matmul/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/slice/op.h"

namespace ebb::functions {

Value gated(Value first, Value second, const GateRule& rule) {
  require(first.shape() == second.shape(), "gated: both tensors must be of one shape (got ",
          first.shape(), ", ", second.shape(), ")");
  if (rule.gate == Gate::first) std::swap(first, second);
  return ops::map(
      {first, second}, [&](auto v) { return v[0] * activation(rule.act, v[1]); }, first.dtype());
}

Value gated(Value z, const GateRule& rule) {
  require(z.shape().rank() >= 1 && z.shape()[-1] % 2 == 0,
          "gated: needs an even number of columns (got ", z.type(), ")");
  const int64_t width = z.shape()[-1] / 2;
  return gated(ops::slice(z, -1, 0, width), ops::slice(z, -1, width, 2 * width), rule);
}

Value product(Value x, Value weight, Value bias) {
  require(x.shape().rank() >= 1 && x.shape()[-1] > 0, "linear: x needs columns (got ", x.type(),
          ")");
  return ops::linear(x, weight, bias);
}

}  // namespace ebb::functions
