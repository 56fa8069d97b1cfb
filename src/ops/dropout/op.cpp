#include "ops/dropout/op.h"

#include "base/error.h"
#include "ops/prim/pointwise/op.h"

namespace ebb::ops {
namespace {

std::vector<Type> infer(const Signature& s) {
  const double p = s.as<Dropout>().p;
  require(p >= 0 && p < 1, "dropout: p must lie in [0, 1) (", p, ")  at ", s.at);
  require(s.in.size() == 4 && s.in[0].shape.rank() > 0 &&
              s.in[2] == Type{DType::i64, {s.in[0].shape[0]}},
          "dropout: needs x [N,...], seed i64[], image i64[N] and step i64[]  at ", s.at);
  return {s.in[0]};
}

std::vector<Value> decompose(Graph&, const Signature& s, std::span<const Value> in) {
  const auto& a = s.as<Dropout>();
  const Shape& x = in[0].shape();
  const Value u = random_uniform({in[1], in[2], in[3]}, x.slice(1, x.rank()), a.use);
  const double p = a.p, scale = 1 / (1 - p);
  return {map(
      {in[0], u}, [=](auto v) { return select(less(v[1], p), 0.0, v[0] * scale); }, in[0].dtype())};
}

std::vector<Example> examples() {
  const std::vector<Type> in = {
      {DType::f32, {3, 5, 7}}, {DType::i64, {}}, {DType::i64, {3}}, {DType::i64, {}}};
  return {{.label = "half", .attrs = Dropout{0.5, "dropout.1"}, .in = in, .integers = 1000},
          {.label = "few", .attrs = Dropout{0.1, "dropout.2"}, .in = in, .integers = 1000}};
}

}  // namespace

const OpDef& def::dropout() {
  static const OpDef d{.name = "dropout",
                       .attrs = +[] { return Attrs(Dropout{}); },
                       .infer = infer,
                       .decompose = decompose,
                       .examples = examples};
  return d;
}

Value dropout(Value x, const RandomKeys& key, const Dropout& attrs) {
  if (attrs.p == 0) return x;
  return x.graph->add1(def::dropout(), attrs, {x, key.seed, key.image, key.step});
}

}  // namespace ebb::ops
