#include "functions/norms.h"

#include "base/error.h"
#include "ops/prim/moments/affine.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reduce/op.h"
#include "ops/prim/reshape/op.h"

namespace ebb::functions {
namespace {

void require_channels(Value v, const char* name, int64_t channels) {
  require(!v || v.shape() == Shape{channels}, "norm: ", name, " must be [", channels, "] (got ",
          v ? v.shape() : Shape{}, ")");
}

// x rstd or (x - mean) rstd, in f32.
Value normalised(Value x, const NormRule& rule) {
  const Value wide = ops::cast(x, DType::f32);
  const double eps = rule.eps;
  if (rule.kind == NormKind::layer)
    return ops::normalize({{wide}}, {.axis = x.shape().rank() - 1, .groups = 1}, eps);
  const double share = 1.0 / static_cast<double>(x.shape()[-1]);
  const Value squares = ops::sum_of({wide}, {-1}, [](auto v) { return v[0] * v[0]; });
  const Value rstd = ops::map({squares}, [=](auto v) { return rsqrt(v[0] * share + eps); });
  return ops::map({wide, rstd}, [](auto v) { return v[0] * v[1]; });
}

// A pointwise step of f32, rounded to `dtype` but still f32: what follows fuses with it.
Value step(std::initializer_list<Value> in, DType dtype,
           const std::function<Scalar(std::span<const Scalar>)>& f) {
  return ops::map(
      in, [&](auto v) { return rounded(f(v), dtype); }, DType::f32);
}

// The dtypes of the values between the operations.
struct Steps {
  DType normalised = DType::f32, weighted = DType::f32, modulated = DType::f32;
  DType result = DType::f32;
};

Steps steps_of(const NormOperands& in, const NormRule& rule) {
  const DType x = in.x.dtype();
  Steps s;
  s.result = x;
  if (rule.rounding == Rounding::once) return s;
  s.normalised = x;
  if (in.weight) {
    const DType w = in.weight.dtype();
    if (rule.rounding == Rounding::diffusers) s.normalised = w;
    s.weighted = promoted(s.normalised, w);
  } else {
    s.weighted = s.normalised;
  }
  s.modulated = s.weighted;
  for (const Value& m : {in.scale, in.shift})
    if (m) s.modulated = promoted(s.modulated, m.dtype());
  s.result = s.modulated;
  return s;
}

}  // namespace

DType promoted(DType a, DType b) { return a == b ? a : DType::f32; }

Value along(Value m, const Shape& x, std::string_view name) {
  Shape shape = m.shape();
  const int64_t rank = x.rank();
  if (shape.rank() == 2 && rank > 2) {
    shape = Shape{shape[0]};
    for (int64_t d = 1; d + 1 < rank; ++d) shape.push_back(1);
    shape.push_back(m.shape()[1]);
  }
  while (shape.rank() < rank) {
    std::vector<int64_t> longer = {1};
    longer.insert(longer.end(), shape.begin(), shape.end());
    shape = Shape(longer);
  }
  require(shape.rank() == rank && broadcastable(shape, x) && shape[-1] == x[-1], "norm: ", name,
          " must be [C], [B,C] or [B|1,...,C] for x ", x, " (got ", m.shape(), ")");
  return ops::reshape(m, shape);
}

Value norm(const NormOperands& in, const NormRule& rule) {
  const Shape shape = in.x.shape();
  require(shape.rank() >= 1 && is_float(in.x.dtype()), "norm: x must be [...,C] of floats (got ",
          in.x.type(), ")");
  require_channels(in.weight, "weight", shape[-1]);
  require_channels(in.bias, "bias", shape[-1]);
  const Steps steps = steps_of(in, rule);
  const double offset = rule.offset;
  Value y = normalised(in.x, rule);
  if (steps.normalised != DType::f32) y = step({y}, steps.normalised, [](auto v) { return v[0]; });
  if (in.weight)
    y = step({y, in.weight}, steps.weighted, [=](auto v) { return v[0] * (offset + v[1]); });
  if (in.bias) y = step({y, in.bias}, steps.weighted, [](auto v) { return v[0] + v[1]; });
  if (in.scale) {
    const Value scale = along(in.scale, shape, "scale");
    const DType of_scale = rule.rounding == Rounding::once ? DType::f32 : scale.dtype();
    y = step({y, scale}, steps.modulated,
             [=](auto v) { return v[0] * rounded(1.0 + v[1], of_scale); });
  }
  if (in.shift)
    y = step({y, along(in.shift, shape, "shift")}, steps.modulated,
             [](auto v) { return v[0] + v[1]; });
  return ops::cast(y, rule.dtype.value_or(steps.result));
}

}  // namespace ebb::functions
