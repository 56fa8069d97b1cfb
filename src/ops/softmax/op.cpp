#include "ops/softmax/op.h"

#include "base/error.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reduce/op.h"

namespace ebb::ops {
namespace {

std::vector<Type> infer(const Signature& s) {
  require(s.in.size() == 1 && s.in[0].shape.rank() > 0 && is_float(s.in[0].dtype),
          "softmax: needs a float tensor of rank 1 or more  at ", s.at);
  return {s.in[0]};
}

std::vector<Value> decompose(Graph&, const Signature&, std::span<const Value> in) {
  const Value x = in[0], m = amax(x, {-1});
  const Value total = sum_of({x, m}, {-1}, [](auto v) { return exp(v[0] - v[1]); });
  return {map(
      {x, m, total}, [](auto v) { return exp(v[0] - v[1]) / v[2]; }, x.dtype())};
}

// dx = y (dy - sum(dy y)).
std::vector<Value> vjp(const VjpCall& c) {
  const Value y = c.out[0], dy = c.dout[0];
  const Value dot = sum_of({dy, y}, {-1}, [](auto v) { return v[0] * v[1]; });
  return {map(
      {y, dy, dot}, [](auto v) { return v[0] * (v[1] - v[2]); }, c.in[0].dtype())};
}

std::vector<Example> examples() {
  const auto f32 = [](Shape s) { return Type{DType::f32, std::move(s)}; };
  return {{.label = "rows", .in = {f32({3, 5, 37})}, .low = -5, .high = 5},
          {.label = "far", .in = {f32({2, 7})}, .low = -200, .high = 200},
          {.label = "one", .in = {f32({3, 1})}},
          {.label = "empty", .in = {f32({0, 3})}}};
}

}  // namespace

const OpDef& def::softmax() {
  static const OpDef d{.name = "softmax",
                       .infer = infer,
                       .decompose = decompose,
                       .vjp = vjp,
                       .examples = examples,
                       .precision = OpDef::Precision::full};
  return d;
}

Value softmax(Value x) { return x.graph->add1(def::softmax(), {}, {x}); }

}  // namespace ebb::ops
