// softmax: exp(x - max) / sum(exp(x - max)) over the last dim, the sum in f32.
#include "base/error.h"
#include "functions/function.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reduce/op.h"
#include "ops/softmax/op.h"

namespace ebb::functions::table {
namespace {

std::vector<Value> build(const Use& u) {
  require(u.in[0].shape().rank() >= 1 && is_float(u.in[0].dtype()),
          "softmax: x must be [...,C] of floats (got ", u.in[0].type(), ")");
  return {ops::softmax(u.in[0])};
}

// dx = y (dy - sum(y dy)).
std::vector<Value> gradient(const Use&, std::span<const Value> results,
                            std::span<const Value> grads) {
  const Value y = results[0], dy = grads[0];
  require(dy && dy.shape() == y.shape(), "softmax: the gradient of a result of ", y.type(),
          " is missing or of another shape");
  const Value total =
      ops::sum_of({y, dy}, {y.shape().rank() - 1}, [](auto v) { return v[0] * v[1]; });
  return {ops::map(
      {y, dy, total}, [](auto v) { return v[0] * (v[1] - v[2]); }, y.dtype())};
}

}  // namespace

// The gradient is made from the result: a pass over two tensors, and no exponentials.
Function softmax() {
  Function f = define<NoAttrs>("softmax", {"x"}, {"y"}, build);
  f.gradient = gradient;
  return f;
}

}  // namespace ebb::functions::table
