// fuse_horizontally: what becomes one launch, and what does not.
#include <gtest/gtest.h>

#include <algorithm>

#include "ir/text.h"
#include "ops/add/op.h"
#include "ops/loop/op.h"
#include "ops/loops/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reduce/op.h"
#include "ops/prim/reshape/op.h"
#include "ops/table.h"
#include "passes/fusion/fuse_horizontally.h"
#include "reference.h"
#include "support/graphs.h"
#include "support/same_results.h"

namespace ebb::test::horizontal_fusion_test {
namespace {

Value decayed(Value v) {
  return ops::map({v}, [](auto x) { return x[0] * 0.5; });
}

TEST(fuse_horizontally, equal_work_on_tensors_of_other_shapes__becomes_one_node) {
  Graph g;
  const Value a = g.source(Source::Kind::param, "a", f32({3, 5}));
  const Value b = g.source(Source::Kind::param, "b", f32({7}));
  g.output("x", decayed(a));
  g.output("y", decayed(b));
  const Graph out = fuse_horizontally(g, all_supported);
  verify(out, "batch");
  EXPECT_EQ(count(out, ops::def::loops()), 1);
  EXPECT_EQ(count(out, ops::def::pointwise()), 0);
  EXPECT_EQ(to_text(parse_graph(to_text(out), find_op)), to_text(out));
  const RefInputs in = {{"a", ref_array({3, 5}, std::vector<double>(15, 4.0))},
                        {"b", ref_array({7}, std::vector<double>(7, 6.0))}};
  const auto values = evaluate_reference(out, in);
  EXPECT_EQ(output_of(out, values, "x").v, std::vector<double>(15, 2.0));
  EXPECT_EQ(output_of(out, values, "y").v, std::vector<double>(7, 3.0));
}

TEST(fuse_horizontally, results_under_other_names__become_one_node_too) {
  Graph g;
  const Value x = g.input("x", f32({4, 3}));
  const Scalar both[] = {Scalar::input(0), -Scalar::input(0)};
  const Value in[] = {x};
  const std::vector<Value> sums = ops::reduce(g, {.expr = Expr(1, both), .dims = {0}}, in);
  g.output("a", ops::cast(ops::reshape(sums[0], {3}), DType::bf16));
  g.output("b", ops::cast(ops::reshape(sums[1], {3}), DType::bf16));
  const Graph out = fuse_horizontally(g, all_supported);
  verify(out, "fuse_horizontally");
  EXPECT_EQ(count(out, ops::def::loops()), 1);
  EXPECT_EQ(count(out, ops::def::pointwise()), 0);
}

// x [2,3,heads,8], whose pairs change places, times a table that heads share, and x times another.
Value turned(Value x, Value cos, Value sin) {
  const Scalar y[] = {Scalar::input(0) * Scalar::input(2) + Scalar::input(1) * Scalar::input(3)};
  const ops::Loop a{
      .expr = Expr(4, y), .shape = x.shape().sizes(), .results = {{DType::f32}}, .swaps = {{1, 1}}};
  return x.graph->add1(ops::def::loop(), a, {x, x, cos, sin});
}

TEST(fuse_horizontally, loops_that_differ_in_their_sizes__become_one) {
  Graph g;
  const Value q = g.input("q", f32({2, 3, 4, 8})), k = g.input("k", f32({2, 3, 2, 8}));
  const Value cos = g.input("cos", f32({1, 3, 1, 8})), sin = g.input("sin", f32({1, 3, 1, 8}));
  g.output("q", turned(q, cos, sin));
  g.output("k", turned(k, cos, sin));
  const Graph out = fuse_horizontally(g, all_supported);
  verify(out, "fuse_horizontally");
  ASSERT_EQ(count(out, ops::def::loops()), 1);
  EXPECT_EQ(count(out, ops::def::loop()), 0);
  expect_equal(g, out);
  EXPECT_EQ(to_text(parse_graph(to_text(out), find_op)), to_text(out));
  const Graph without_kernel =
      fuse_horizontally(g, [](const Signature& s) { return s.op != &ops::def::loops(); });
  EXPECT_EQ(count(without_kernel, ops::def::loop()), 2);
}

TEST(fuse_horizontally, loops_of_each_others_results__stay_apart) {
  Graph g;
  const Value q = g.input("q", f32({2, 3, 4, 8}));
  const Value cos = g.input("cos", f32({1, 3, 1, 8})), sin = g.input("sin", f32({1, 3, 1, 8}));
  g.output("q", turned(turned(q, cos, sin), cos, sin));
  const Graph out = fuse_horizontally(g, all_supported);
  EXPECT_EQ(count(out, ops::def::loops()), 0);
}

TEST(fuse_horizontally, loops_far_from_each_other__stay_apart) {
  Graph g;
  const Value q = g.input("q", f32({2, 3, 4, 8})), k = g.input("k", f32({2, 3, 2, 8}));
  const Value cos = g.input("cos", f32({1, 3, 1, 8})), sin = g.input("sin", f32({1, 3, 1, 8}));
  g.output("q", turned(q, cos, sin));
  Value between = g.input("x", f32({3}));
  for (int i = 0; i < 20; ++i) between = between + between;
  g.output("between", between);
  g.output("k", turned(k, cos, sin));
  EXPECT_EQ(count(fuse_horizontally(g, all_supported), ops::def::loops()), 0);
}

TEST(fuse_horizontally, whole_tensors_far_from_each_other__become_one_node) {
  Graph g;
  constexpr int tensors = 40;
  for (int i = 0; i < tensors; ++i) {
    const Value x = g.source(Source::Kind::param, str("x", i), f32({1 + i, 3}));
    g.output(str("y", i), ops::cast(x, DType::bf16));
  }
  size_t most = 0;  // uses that the device is asked for
  const Graph out = fuse_horizontally(g, [&](const Signature& s) {
    most = std::max(most, s.in.size());
    return true;
  });
  ASSERT_EQ(count(out, ops::def::loops()), 1);
  EXPECT_EQ(out.nodes()[0].in.size(), size_t{tensors});
  EXPECT_LE(most, size_t{8});  // asked of each number of them, plans would compile slowly
  expect_equal(g, out);
}

TEST(fuse_horizontally, numbers_and_whole_tensors__stay_apart) {
  Graph g;
  const Value x = g.input("x", f32({4, 3})), y = g.input("y", f32({5, 3})),
              n = g.input("n", f32({}));
  g.output("whole", ops::map({x, x}, [](auto v) { return v[0] * sigmoid(v[1]); }));
  g.output("number", ops::map({y, n}, [](auto v) { return v[0] * sigmoid(v[1]); }));
  EXPECT_EQ(count(fuse_horizontally(g, all_supported), ops::def::loops()), 0);
}

TEST(fuse_horizontally, dependent_nodes__do_not_fuse) {
  Graph g;
  const Value a = g.source(Source::Kind::param, "a", f32({3}));
  g.output("x", decayed(decayed(a)));
  EXPECT_EQ(count(fuse_horizontally(g, all_supported), ops::def::loops()), 0);
}

TEST(fuse_horizontally, other_expressions_and_dtypes__stay_apart) {
  Graph g;
  const Value a = g.source(Source::Kind::param, "a", f32({3}));
  const Value b = g.source(Source::Kind::param, "b", {DType::bf16, {3}});
  g.output("x", decayed(a));
  g.output("y", decayed(b));
  g.output("z", ops::map({a}, [](auto x) { return x[0] * 0.25; }));
  EXPECT_EQ(count(fuse_horizontally(g, all_supported), ops::def::loops()), 0);
}

}  // namespace
}  // namespace ebb::test::horizontal_fusion_test
