#include "ops/cross_entropy/op.h"

#include <algorithm>

#include "base/error.h"
#include "ops/prim/iota/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reduce/op.h"
#include "ops/prim/reshape/op.h"

namespace ebb::ops {
namespace {

std::vector<Type> infer(const Signature& s) {
  require(s.in.size() == 2 && s.in[0].shape.rank() == 2 && s.in[0].shape[1] > 0 &&
              s.in[1] == Type{DType::i64, {s.in[0].shape[0]}},
          "cross_entropy: needs logits [N,K] and labels i64[N]  at ", s.at);
  return {{DType::f32, {}}};
}

// Maximum and sum(exp(x - maximum)) of every row, [N,1].
struct RowSums {
  Value maximum, total;
};

RowSums row_sums(Value x) {
  const Value m = amax(x, {1});
  return {m, sum_of({x, m}, {1}, [](auto v) { return exp(v[0] - v[1]); })};
}

Scalar equal(const Scalar& a, const Scalar& b) { return (1.0 - less(a, b)) * (1.0 - less(b, a)); }

double inverse_rows(const Shape& x) {
  return 1.0 / static_cast<double>(std::max<int64_t>(x[0], 1));
}

std::vector<Value> decompose(Graph& g, const Signature&, std::span<const Value> in) {
  const Value x = in[0], label = reshape(in[1], {x.shape()[0], 1});
  const Value k = iota(g, {.shape = {x.shape()[1]}});
  const RowSums rows = row_sums(x);
  const Value picked =
      sum_of({x, label, k}, {1}, [](auto v) { return select(equal(v[1], v[2]), v[0], 0.0); });
  const Value total = sum_of({rows.total, rows.maximum, picked}, {0, 1},
                             [](auto v) { return log(v[0]) + (v[1] - v[2]); });
  const double inv = inverse_rows(x.shape());
  return {map({reshape(total, {})}, [inv](auto v) { return v[0] * inv; })};
}

// d x = (softmax(x) - onehot) dy / N.
std::vector<Value> vjp(const VjpCall& c) {
  const Value x = c.in[0], label = reshape(c.in[1], {x.shape()[0], 1});
  const Value k = iota(c.graph, {.shape = {x.shape()[1]}});
  const RowSums rows = row_sums(x);
  const double inv = inverse_rows(x.shape());
  return {
      map(
          {x, rows.maximum, rows.total, label, k, c.dout[0]},
          [inv](auto v) { return (exp(v[0] - v[1]) / v[2] - equal(v[3], v[4])) * (v[5] * inv); },
          x.dtype()),
      {}};
}

std::vector<Example> examples() {
  return {{.label = "rows",
           .in = {{DType::f32, {5, 7}}, {DType::i64, {5}}},
           .integers = 7,
           .low = -4,
           .high = 4},
          {.label = "far",
           .in = {{DType::f32, {3, 11}}, {DType::i64, {3}}},
           .integers = 11,
           .low = -200,
           .high = 200}};
}

}  // namespace

const OpDef& def::cross_entropy() {
  static const OpDef d{.name = "cross_entropy",
                       .infer = infer,
                       .decompose = decompose,
                       .vjp = vjp,
                       .examples = examples,
                       .precision = OpDef::Precision::full};
  return d;
}

Value cross_entropy(Value logits, Value labels) {
  return logits.graph->add1(def::cross_entropy(), {}, {logits, labels});
}

}  // namespace ebb::ops
