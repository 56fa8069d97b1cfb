// Networks in 16 bits whose parameters are rounded with them.
#include "passes/precision/mixed_precision.h"

#include <gtest/gtest.h>

#include "nn/ops.h"

namespace ebb::mixed_precision_test {
namespace {

Value param(Graph& g, const std::string& name, const Shape& shape) {
  return g.source(Source::Kind::param, name, {DType::f32, shape});
}

}  // namespace

TEST(mixed_precision, parameters_rounded__do_not_widen_activations) {
  Graph g;
  const Value x = g.input("x", {DType::f32, {2, 4, 6}});
  const Value h = ops::linear(x, param(g, "w", {6, 6}));
  const Value table = g.source(Source::Kind::state, "table", {DType::f32, {1, 4, 6}});
  const Value last = g.source(Source::Kind::state, "last", {DType::f32, {2, 4, 6}});
  const Value sum = h + table;
  const Value rows =
      ops::slice(g.source(Source::Kind::state, "rows", {DType::f32, {9, 6}}), 0, 0, 4);
  const Value more = sum + ops::reshape(rows, {1, 4, 6});  // of a parameter's rows
  g.output("y", ops::linear(more, param(g, "v", {6, 6})));
  g.update("last", h + last);  // no parameter: what is kept between runs stays in f32
  const auto dtypes = [&](Parameters p) {
    std::vector<DType> out;
    const Graph low = mixed_precision(g, DType::bf16, p);
    for (const Node& n : low.nodes())
      if (n.op->name == "add") out.push_back(low.type(n.out[0]).dtype);
    return out;
  };
  EXPECT_EQ(dtypes(Parameters::in_f32), (std::vector{DType::f32, DType::f32, DType::f32}));
  EXPECT_EQ(dtypes(Parameters::rounded), (std::vector{DType::bf16, DType::bf16, DType::f32}));
}

}  // namespace ebb::mixed_precision_test
