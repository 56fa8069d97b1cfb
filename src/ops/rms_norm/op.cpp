#include "ops/rms_norm/op.h"

#include <algorithm>

#include "base/error.h"
#include "ops/prim/moments/affine.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reduce/op.h"

namespace ebb::ops {
namespace {

std::vector<Type> infer(const Signature& s) {
  require(s.in.size() <= 2, "rms_norm: has no beta  at ", s.at);
  return infer_norm(s, 1);
}

std::vector<Value> decompose(Graph&, const Signature& s, std::span<const Value> in) {
  const double eps = s.as<RmsNorm>().eps;
  const Value x = in[0];
  const double inv = 1.0 / static_cast<double>(std::max<int64_t>(x.shape()[-1], 1));
  const Value squares = sum_of({x}, {-1}, [](auto v) { return v[0] * v[0]; });
  const Value rstd = map({squares}, [=](auto v) { return rsqrt(v[0] * inv + eps); });
  const DType dtype = x.dtype();
  if (in.size() == 1)
    return {map(
        {x, rstd}, [](auto v) { return v[0] * v[1]; }, dtype)};
  return {map(
      {x, rstd, in[1]}, [](auto v) { return v[0] * (v[1] * v[2]); }, dtype)};
}

std::vector<Example> examples() {
  const auto f32 = [](Shape s) { return Type{DType::f32, std::move(s)}; };
  return {
      {.label = "affine", .attrs = RmsNorm{}, .in = {f32({2, 9, 37}), f32({37})}},
      {.label = "plain", .attrs = RmsNorm{1e-5}, .in = {f32({5, 24})}},
  };
}

}  // namespace

const OpDef& def::rms_norm() {
  static const OpDef d{.name = "rms_norm",
                       .attrs = +[] { return Attrs(RmsNorm{}); },
                       .infer = infer,
                       .decompose = decompose,
                       .examples = examples,
                       .precision = OpDef::Precision::mixed};
  return d;
}

Value rms_norm(Value x, Value gamma, const RmsNorm& attrs) {
  return x.graph->add(def::rms_norm(), attrs, norm_inputs(x, gamma, {}))[0];
}

}  // namespace ebb::ops
