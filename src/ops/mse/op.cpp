#include "ops/mse/op.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reduce/op.h"
#include "ops/prim/reshape/op.h"

namespace ebb::ops {
namespace {

std::vector<Type> infer(const Signature& s) {
  require(s.in.size() == 2 && s.in[0].shape == s.in[1].shape, "mse: shapes must be equal  at ",
          s.at);
  return {{DType::f32, {}}};
}

std::vector<Value> decompose(Graph&, const Signature&, std::span<const Value> in) {
  const Shape& x = in[0].shape();
  std::vector<int64_t> all(static_cast<size_t>(x.rank()));
  std::iota(all.begin(), all.end(), 0);
  const double inv = 1.0 / static_cast<double>(std::max<int64_t>(x.numel(), 1));
  const Value total = sum_of({in[0], in[1]}, all, [](auto v) {
    const Scalar d = v[0] - v[1];
    return d * d;
  });
  return {map({reshape(total, {})}, [inv](auto v) { return v[0] * inv; })};
}

std::vector<Example> examples() {
  const auto f32 = [](Shape s) { return Type{DType::f32, std::move(s)}; };
  return {{.label = "image", .in = {f32({2, 5, 7, 3}), f32({2, 5, 7, 3})}},
          {.label = "scalar", .in = {f32({}), f32({})}},
          {.label = "empty", .in = {f32({0, 3}), f32({0, 3})}}};
}

}  // namespace

const OpDef& def::mse() {
  static const OpDef d{.name = "mse",
                       .infer = infer,
                       .decompose = decompose,
                       .examples = examples,
                       .precision = OpDef::Precision::full};
  return d;
}

Value mse(Value a, Value b) { return a.graph->add1(def::mse(), {}, {a, b}); }

}  // namespace ebb::ops
