// add_norm: a residual branch and the norm behind it: sum = x + gate add, and the norm of sum with
// its weight and modulation.
#include "base/error.h"
#include "functions/norms.h"
#include "ops/prim/pointwise/op.h"

namespace ebb::functions::table {
namespace {

struct AddNorm {
  std::string kind = "layer";
  double eps = 1e-6, offset = 0;
  std::string rounding = "once", dtype = {};
  void fields(auto&& f) {
    f("kind", kind);
    f("eps", eps);
    f("offset", offset);
    f("rounding", rounding);
    f("dtype", dtype);
  }
};

// In x's dtype, which the norm reads; with roundings of the libraries the product is rounded too.
Value added(Value x, Value add, Value gate, Rounding rounding) {
  require(add.shape() == x.shape(), "add_norm: add must be ", x.shape(), " as x is (got ",
          add.shape(), ")");
  const std::string dtype(name_of(x.dtype()));
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
  const auto& a = u.as<AddNorm>();
  const Rounding rounding = parse_rounding(a.rounding);
  const Value sum = added(u.in[0], u.in[1], u.in[2], rounding);
  const Value y =
      norm({.x = sum, .weight = u.in[5], .bias = u.in[6], .scale = u.in[3], .shift = u.in[4]},
           {.kind = parse_norm_kind(a.kind),
            .eps = a.eps,
            .offset = a.offset,
            .rounding = rounding,
            .dtype = a.dtype});
  return {y, sum};
}

}  // namespace

Function add_norm() {
  return define<AddNorm>("add_norm", {"x", "add", "gate?", "scale?", "shift?", "weight?", "bias?"},
                         {"y", "sum"}, build);
}

}  // namespace ebb::functions::table
