// The passes that make fewer and larger pieces of work.
#include <gtest/gtest.h>

#include <algorithm>

#include "ops/pointwise_batch/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reduce/op.h"
#include "passes/batch.h"
#include "passes/fuse.h"
#include "reference.h"

namespace ebb::test {
namespace {

Type f32(Shape s) { return {DType::f32, std::move(s)}; }

int64_t count(const Graph& g, const OpDef& op) {
  return std::count_if(g.nodes().begin(), g.nodes().end(),
                       [&](const Node& n) { return n.op == &op; });
}

Value decayed(Value v) {
  return ops::map({v}, [](auto x) { return x[0] * 0.5; });
}

TEST(batch, equal_work_on_tensors_of_other_shapes__becomes_one_node) {
  Graph g;
  const Value a = g.source(Source::Kind::param, "a", f32({3, 5}));
  const Value b = g.source(Source::Kind::param, "b", f32({7}));
  g.output("x", decayed(a));
  g.output("y", decayed(b));
  const Graph out = batch(g);
  verify(out, "batch");
  EXPECT_EQ(count(out, ops::def::pointwise_batch()), 1);
  EXPECT_EQ(count(out, ops::def::pointwise()), 0);
  const RefInputs in = {{"a", ref_array({3, 5}, std::vector<double>(15, 4.0))},
                        {"b", ref_array({7}, std::vector<double>(7, 6.0))}};
  const auto values = evaluate_reference(out, in);
  EXPECT_EQ(output_of(out, values, "x").v, std::vector<double>(15, 2.0));
  EXPECT_EQ(output_of(out, values, "y").v, std::vector<double>(7, 3.0));
}

TEST(batch, work_that_waits_for_other_work__stays_apart) {
  Graph g;
  const Value a = g.source(Source::Kind::param, "a", f32({3}));
  g.output("x", decayed(decayed(a)));
  EXPECT_EQ(count(batch(g), ops::def::pointwise_batch()), 0);
}

TEST(batch, other_formulas_and_dtypes__stay_apart) {
  Graph g;
  const Value a = g.source(Source::Kind::param, "a", f32({3}));
  const Value b = g.source(Source::Kind::param, "b", {DType::bf16, {3}});
  g.output("x", decayed(a));
  g.output("y", decayed(b));
  g.output("z", ops::map({a}, [](auto x) { return x[0] * 0.25; }));
  EXPECT_EQ(count(batch(g), ops::def::pointwise_batch()), 0);
}

// x [4,128] times a number a row that a formula makes of `rows` [4,1].
Graph scaled_rows(bool sum_over_rows) {
  Graph g;
  const Value x = g.input("x", f32({4, 128})), rows = g.input("rows", f32({4, 1}));
  const Value r = ops::map({rows}, [](auto v) { return rsqrt(v[0] + 1.0); });
  const auto product = [](auto v) { return v[0] * v[1]; };
  g.output("y", ops::map({x, r}, product));
  if (sum_over_rows) g.output("s", ops::sum_of({x, r}, {0}, product));
  return g;
}

TEST(fuse, number_of_a_row__is_computed_where_rows_are_read) {
  EXPECT_EQ(count(fuse(scaled_rows(false), {.rows_once = true}), ops::def::pointwise()), 1);
  EXPECT_EQ(count(fuse(scaled_rows(false), {.rows_once = false}), ops::def::pointwise()), 2);
}

TEST(fuse, number_of_a_row__is_kept_for_sums_across_rows) {
  EXPECT_EQ(count(fuse(scaled_rows(true), {.rows_once = true}), ops::def::pointwise()), 2);
}

}  // namespace
}  // namespace ebb::test
