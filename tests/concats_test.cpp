// Concatenations that the producers of their segments write, and that semantics are preserved.
#include "passes/views/elide_copies.h"

#include <gtest/gtest.h>

#include "ir/text.h"
#include "ops/group_affine/op.h"
#include "ops/group_affine_grad/op.h"
#include "ops/group_norm/op.h"
#include "ops/loop/op.h"
#include "ops/modulate/op.h"
#include "ops/prim/concat/op.h"
#include "ops/prim/matmul/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/silu/op.h"
#include "ops/split/op.h"
#include "passes/fusion/fuse_loops.h"
#include "passes/fusion/inline_producers.h"
#include "passes/gradients.h"
#include "passes/simplify.h"
#include "support/graphs.h"
#include "support/same_results.h"

namespace ebb::test::concats_test {
namespace {

Graph folded(const Graph& g,
             const std::function<bool(const Signature&)>& supports = all_supported) {
  Graph out = elide_copies(g, supports);
  verify(out, "concats");
  return out;
}

Value twice(Value v) {
  return ops::map({v}, [](auto x) { return x[0] * 2.0; });
}

// a [2,1,4] and b [2,1,8] by an expression each, joined as [2,12].
struct Joined {
  Graph g;
  Value a = g.input("a", f32({2, 1, 4})), b = g.input("b", f32({2, 1, 8}));
  Value join(Value x, Value y) {
    const Value v = ops::concat({ops::reshape(x, {2, 4}), ops::reshape(y, {2, 8})}, 1);
    g.output("y", ops::matmul(v, v, {.trans_b = true}));
    return v;
  }
};

TEST(concats, expressions_that_are_alike__become_one_of_the_segments) {
  Joined t;
  t.join(twice(t.a), twice(t.b));
  const Graph out = folded(t.g);
  EXPECT_EQ(count(out, ops::def::concat()), 0);
  EXPECT_EQ(count(out, ops::def::pointwise()), 0);
  EXPECT_EQ(count_loops(out, ops::LoopKind::map), 1);
  expect_equal(t.g, out);
}

TEST(concats, expressions_that_differ_or_are_read_elsewhere__stay) {
  Joined differ, read, output;
  differ.join(twice(differ.a), ops::map({differ.b}, [](auto x) { return x[0] * 3.0; }));
  const Value x = twice(read.a);
  read.join(x, twice(read.b));
  read.g.output("x", x);
  const Value y = twice(output.b), moved = ops::reshape(y, {2, 8});
  output.join(twice(output.a), moved);
  output.g.output("moved", moved);
  for (const Joined* t : {&differ, &read, &output})
    EXPECT_EQ(count(folded(t->g), ops::def::concat()), 1);
}

TEST(concats, other_dims_broadcasts_and_odd_borders__stay) {
  Graph rows, broadcast, odd;
  const auto join = [](Graph& g, Value a, Value b, int64_t dim) {
    g.output("y", ops::concat({a, b}, dim));
    EXPECT_EQ(count(folded(g), ops::def::concat()), 1);
  };
  join(rows, twice(rows.input("a", f32({2, 4}))), twice(rows.input("b", f32({3, 4}))), 0);
  const Value one = broadcast.input("a", f32({4})), wide = broadcast.input("b", f32({4}));
  join(broadcast, ops::broadcast_to(one, {2, 4}), ops::broadcast_to(wide, {2, 4}), 1);
  join(odd, twice(odd.input("a", f32({2, 3}))), twice(odd.input("b", f32({2, 5}))), 1);
}

TEST(concats, without_a_kernel__nothing_changes) {
  Joined t;
  t.join(twice(t.a), twice(t.b));
  EXPECT_EQ(count(folded(t.g, none_supported), ops::def::concat()), 1);
}

// The gradient of a modulated norm, of which scale and shift came from one product.
Graph modulated_norm() {
  Graph g;
  const Value x = g.source(Source::Kind::param, "x", f32({2, 4, 4, 16}));
  const Value m = g.source(Source::Kind::param, "m", f32({32, 8}));
  const auto parts = ops::split(ops::linear(g.input("e", f32({2, 8})), m, {}), 1, 2);
  const Value h = ops::group_norm(x, {}, {}, {.groups = 4});
  const Value y = ops::silu(ops::modulate(h, parts[1], parts[0]));
  const Value end = ops::matmul(y, g.input("w", f32({16, 16})), {});
  const Value dy = g.input("dy", f32({2, 4, 4, 16}));
  sum_as_loss(g, ops::map({end, dy}, [](auto v) { return v[0] * v[0] * v[1]; }));
  const std::string wrt[] = {"x", "m"};
  const Graph low = lower(gradients(g, "loss", wrt), [](const Signature& s) {
    return s.op->reference != nullptr || s.op == &ops::def::group_affine() ||
           s.op == &ops::def::group_affine_grad();
  });
  const Graph fused =
      dead_code(inline_producers(common_subexpressions(dead_code(low)), {60, true}));
  return fuse_loops(fused, {all_supported});
}

TEST(concats, gradients_of_scale_and_shift__are_written_side_by_side) {
  const Graph before = modulated_norm(), out = folded(before);
  EXPECT_EQ(count(before, ops::def::concat()), 1);
  EXPECT_EQ(count(out, ops::def::concat()), 0);
  EXPECT_EQ(count_loops(out, ops::LoopKind::pixels), 2);
  expect_equal(before, out);
}

// Of x, y [2,3,width], three results of one expression.
struct OfOne {
  Graph g;
  std::vector<Value> r;
  explicit OfOne(int64_t width) {
    const Shape shape = {2, 3, width};
    const Scalar x = Scalar::input(0), y = Scalar::input(1), results[] = {x * y, x + y, x - y};
    const Value in[] = {g.input("x", f32(shape)), g.input("y", f32(shape))};
    r = ops::pointwise(g, {Expr(2, results), shape.sizes(), DType::f32}, in);
  }
  // Read by products.
  void join(const std::vector<Value>& of) {
    std::vector<Value> rows;
    for (const Value& v : of) rows.push_back(ops::reshape(v, {6, v.shape()[-1]}));
    const Value v = ops::concat(rows, 1);
    g.output("joined", ops::matmul(v, v, {.trans_b = true}));
  }
};

TEST(concats, results_of_one_loop__are_written_side_by_side) {
  OfOne two(8), reversed(8), all(3);
  two.join({two.r[1], two.r[2]});
  two.g.output("first", two.r[0]);
  reversed.join({reversed.r[2], reversed.r[0]});
  reversed.g.output("second", reversed.r[1]);
  all.join(all.r);
  for (const OfOne* t : {&two, &reversed, &all}) {
    const Graph out = folded(t->g);
    EXPECT_EQ(count(out, ops::def::concat()), 0);
    EXPECT_EQ(count_loops(out, ops::LoopKind::map), 1);
    expect_equal(t->g, out);
  }
}

TEST(concats, results_of_one_loop_that_others_read_or_of_narrow_columns__stay) {
  OfOne read(8), narrow(6);
  read.join({read.r[0], read.r[1]});
  read.g.output("first", read.r[0]);
  narrow.join({narrow.r[0], narrow.r[1]});
  for (const OfOne* t : {&read, &narrow}) EXPECT_EQ(count(folded(t->g), ops::def::concat()), 1);
}

TEST(concats, results_that_differ_or_lie_in_segments__are_errors) {
  const Scalar results[] = {Scalar::input(0), Scalar::input(0) * 2.0};
  const ops::Loop good{.expr = Expr(1, results),
                       .shape = {3, 8},
                       .results = {{DType::f32}, {DType::f32}},
                       .concatenated = 2};
  const auto inferred = [](const ops::Loop& a) {
    Signature s{&ops::def::loop(), a, {f32(Shape(a.shape))}, {}, ""};
    return s.op->infer(s);
  };
  EXPECT_EQ(inferred(good), (std::vector<Type>{f32({3, 16})}));
  ops::Loop other_dtype = good, segmented = good, number = good;
  other_dtype.results = {{DType::f32}, {DType::bf16}};
  segmented.segments = {{4, 4}, {}, {1}};
  number.shape = {};
  for (const ops::Loop& a : {other_dtype, segmented, number}) EXPECT_THROW(inferred(a), Error);
}

TEST(concats, outputs_that_cannot_lie_side_by_side__are_errors) {
  const Graph out = folded(modulated_norm());
  int64_t concatenated = 0;
  for (const Node& n : out.nodes()) {
    if (n.op != &ops::def::loop() || n.attrs.as<ops::Loop>().concatenated == 0) continue;
    Signature s = out.signature(n);
    auto a = s.as<ops::Loop>();
    const int64_t good = a.concatenated;
    ++concatenated;
    for (const int64_t wrong : {int64_t{-1}, int64_t{1}, good + 7}) {
      a.concatenated = wrong;
      s.attrs = a;
      EXPECT_THROW(s.op->infer(s), Error) << wrong;
    }
  }
  EXPECT_GT(concatenated, 0) << to_text(out);
}

}  // namespace
}  // namespace ebb::test::concats_test
