#include "ops/clip_scale/op.h"

#include <numeric>

#include "base/error.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reduce/op.h"
#include "ops/prim/reshape/op.h"

namespace ebb::ops {
namespace {

constexpr double largest = 3.4e38;  // an f32 sum above it is infinite

std::vector<Type> infer(const Signature& s) {
  require(!s.in.empty(), "clip_scale: needs a gradient  at ", s.at);
  require(s.as<ClipScale>().max_norm >= 0, "clip_scale: max_norm must not be negative (",
          s.as<ClipScale>().max_norm, ")  at ", s.at);
  return {{DType::f32, {}}, {DType::f32, {}}};
}

std::vector<Value> decompose(Graph& g, const Signature& s, std::span<const Value> in) {
  const double max_norm = s.as<ClipScale>().max_norm;
  std::vector<Value> squares;
  Scalar total = 0.0;
  for (const Value& v : in) {
    std::vector<int64_t> all(static_cast<size_t>(v.shape().rank()));
    std::iota(all.begin(), all.end(), 0);
    const Value sum = sum_of({v}, all, [](auto x) { return x[0] * x[0]; });
    total = total + Scalar::input(static_cast<int64_t>(squares.size()));
    squares.push_back(reshape(sum, {}));
  }
  const Scalar norm = sqrt(total);
  const Scalar wanted = max_norm > 0 ? min(1.0, max_norm / (norm + 1e-6)) : Scalar(1.0);
  // A comparison with NaN is false: neither infinity nor NaN gets through.
  const Scalar results[] = {select(less(total, largest), wanted, 0.0), norm};
  return pointwise(g, {Expr(static_cast<int64_t>(in.size()), results), {}, DType::f32}, squares);
}

std::vector<Example> examples() {
  const Type a{DType::f32, {5, 13}}, b{DType::f32, {7}}, c{DType::f32, {}};
  return {{.label = "above", .attrs = ClipScale{0.5}, .in = {a, b, c}},
          {.label = "below", .attrs = ClipScale{100}, .in = {a, b}},
          {.label = "no_limit", .attrs = ClipScale{0}, .in = {b}}};
}

}  // namespace

const OpDef& def::clip_scale() {
  static const OpDef d{.name = "clip_scale",
                       .attrs = +[] { return Attrs(ClipScale{}); },
                       .infer = infer,
                       .decompose = decompose,
                       .examples = examples,
                       .differentiable = false};
  return d;
}

ClipScaleResults clip_scale(std::span<const Value> gradients, const ClipScale& attrs) {
  require(!gradients.empty(), "clip_scale: needs a gradient");
  const auto out = gradients[0].graph->add(def::clip_scale(), attrs, gradients);
  return {out[0], out[1]};
}

}  // namespace ebb::ops
