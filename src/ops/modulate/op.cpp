#include "ops/modulate/op.h"

#include "base/error.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reshape/op.h"

namespace ebb::ops {
namespace {

std::vector<Type> infer(const Signature& s) {
  require(s.in.size() == 3 && s.in[0].shape.rank() >= 2,
          "modulate: needs x [N,...,C], shift and scale [N,C]  at ", s.at);
  const Shape &x = s.in[0].shape, rows{x[0], x[-1]};
  require(s.in[1].shape == rows && s.in[2].shape == rows, "modulate: shift and scale must be ",
          rows, " (got ", s.in[1], ", ", s.in[2], ")  x: ", s.in[0], "  at ", s.at);
  return {s.in[0]};
}

std::vector<Value> decompose(Graph&, const Signature& s, std::span<const Value> in) {
  Shape small = in[0].shape();
  for (int64_t d = 1; d < small.rank() - 1; ++d) small[d] = 1;
  return {map(
      {in[0], reshape(in[1], small), reshape(in[2], small)},
      [](auto v) { return v[0] * (1.0 + v[2]) + v[1]; }, s.in[0].dtype)};
}

std::vector<Example> examples() {
  const auto f32 = [](Shape s) { return Type{DType::f32, std::move(s)}; };
  return {
      {.label = "tokens", .in = {f32({2, 9, 7}), f32({2, 7}), f32({2, 7})}},
      {.label = "image", .in = {f32({2, 3, 5, 7}), f32({2, 7}), f32({2, 7})}},
      {.label = "rows", .in = {f32({3, 7}), f32({3, 7}), f32({3, 7})}},
  };
}

}  // namespace

const OpDef& def::modulate() {
  static const OpDef d{
      .name = "modulate", .infer = infer, .decompose = decompose, .examples = examples};
  return d;
}

Value modulate(Value x, Value shift, Value scale) {
  return x.graph->add1(def::modulate(), {}, {x, shift, scale});
}

}  // namespace ebb::ops
