// add_norm: a residual branch and the norm behind it: sum = x + gate add, and the norm of sum with
// its weight and modulation.
#include "base/error.h"
#include "functions/norms.h"
#include "ops/prim/pointwise/op.h"

namespace ebb::functions::table {
namespace {

using AddNorm = NormAttributes<true, true>;

// In x's dtype, which the norm reads; with roundings of the libraries the product is rounded too.
Value added(Value x, Value add, Value gate, Rounding rounding) {
  require(add.shape() == x.shape(), "add_norm: add must be ", x.shape(), " as x is (got ",
          add.shape(), ")");
  const DType dtype = x.dtype();
  if (!gate)
    return ops::map(
        {x, add}, [](auto v) { return v[0] + v[1]; }, dtype);
  const DType product =
      rounding == Rounding::once ? DType::f32 : promoted(add.dtype(), gate.dtype());
  return ops::map(
      {x, add, along(gate, x.shape(), "gate")},
      [=](auto v) { return v[0] + rounded(v[1] * v[2], product); }, dtype);
}

std::vector<Value> build(const Use& u) {
  const NormRule rule = u.as<AddNorm>().rule();
  const Value sum = added(u.in[0], u.in[1], u.in[2], rule.rounding);
  const Value y = norm(
      {.x = sum, .weight = u.in[5], .bias = u.in[6], .scale = u.in[3], .shift = u.in[4]}, rule);
  return {y, sum};
}

}  // namespace

Function add_norm() {
  return define<AddNorm>("add_norm", {"x", "add", "gate?", "scale?", "shift?", "weight?", "bias?"},
                         {"y", "sum"}, build);
}

}  // namespace ebb::functions::table
