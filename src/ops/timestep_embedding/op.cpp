#include "ops/timestep_embedding/op.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ops/prim/concat/op.h"
#include "ops/prim/iota/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reshape/op.h"

namespace ebb::ops {
namespace {

std::vector<Type> infer(const Signature& s) {
  const auto& a = s.as<TimestepEmbedding>();
  require(s.in.size() == 1 && s.in[0].shape.rank() == 1, "timestep_embedding: needs t [N]  at ",
          s.at);
  require(a.dim > 0 && a.dim % 2 == 0, "timestep_embedding: dim must be even (", a.dim, ")  at ",
          s.at);
  require(a.max_period > 0, "timestep_embedding: max_period must be positive (", a.max_period,
          ")  at ", s.at);
  return {{DType::f32, {s.in[0].shape[0], a.dim}}};
}

std::vector<Value> decompose(Graph& g, const Signature& s, std::span<const Value> in) {
  const auto& a = s.as<TimestepEmbedding>();
  const int64_t half = a.dim / 2;
  const int64_t steps = std::max<int64_t>(a.endpoint ? half - 1 : half, 1);
  const double step = -std::log(a.max_period) / static_cast<double>(steps);
  const Value exponent = iota(g, {.shape = {half}, .step = step});
  const Value t = reshape(in[0], {in[0].shape()[0], 1});
  const Scalar angle = Scalar::input(0) * exp(Scalar::input(1));
  const Scalar results[] = {a.cos_first ? cos(angle) : sin(angle),
                            a.cos_first ? sin(angle) : cos(angle)};
  const Value args[] = {t, exponent};
  return {concat(pointwise(g, {Expr(2, results), {}, DType::f32}, args), 1)};
}

std::vector<Example> examples() {
  const std::vector<Type> t = {{DType::f32, {5}}};
  return {
      {.label = "ddpm", .attrs = TimestepEmbedding{.dim = 32}, .in = t, .low = 0, .high = 1000},
      {.label = "sine_first",
       .attrs = TimestepEmbedding{.dim = 14, .cos_first = false, .endpoint = true},
       .in = t,
       .low = -4,
       .high = 4},
      {.label = "pair", .attrs = TimestepEmbedding{.dim = 2, .endpoint = true}, .in = t},
  };
}

}  // namespace

const OpDef& def::timestep_embedding() {
  static const OpDef d{.name = "timestep_embedding",
                       .attrs = +[] { return Attrs(TimestepEmbedding{}); },
                       .infer = infer,
                       .decompose = decompose,
                       .examples = examples};
  return d;
}

Value timestep_embedding(Value t, int64_t dim, TimestepEmbedding attrs) {
  attrs.dim = dim;
  return t.graph->add1(def::timestep_embedding(), attrs, {t});
}

}  // namespace ebb::ops
