// Segmented views: which concatenations and slices the pass elides, and that semantics are
// preserved.
#include "passes/views/elide_copies.h"

#include <gtest/gtest.h>

#include "ops/add/op.h"
#include "ops/group_affine/op.h"
#include "ops/group_affine_grad/op.h"
#include "ops/group_norm/op.h"
#include "ops/loop/op.h"
#include "ops/prim/concat/op.h"
#include "ops/prim/matmul/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reduce/op.h"
#include "ops/prim/reshape/op.h"
#include "ops/prim/slice/op.h"
#include "ops/silu/op.h"
#include "passes/fusion/fuse_loops.h"
#include "passes/fusion/inline_producers.h"
#include "passes/gradients.h"
#include "passes/lower.h"
#include "passes/simplify.h"
#include "support/graphs.h"
#include "support/same_results.h"

namespace ebb::test::views_test {
namespace {

// The graph as it comes to the pass.
Graph fused(const Graph& g) {
  const Graph low = lower(g, [](const Signature& s) {
    return s.op->reference != nullptr || s.op == &ops::def::group_affine() ||
           s.op == &ops::def::group_affine_grad();
  });
  return inline_producers(drop_unused_inputs(dead_code(low)), {});
}
Graph folded(const Graph& g, bool supports = true) {
  Graph out = elide_copies(g, [=](const Signature&) { return supports; });
  verify(out, "segments");
  return out;
}

// x times coefficients, cut at these borders; every slice is an output.
struct Cut {
  Graph g;
  Value x = g.input("x", f32({2, 3, 12})), c = g.input("c", f32({2, 1, 12}));
  Value y = scaled(x, c);
  void slices(std::initializer_list<std::pair<int64_t, int64_t>> ranges, Value of,
              int64_t dim = 2) {
    for (const auto& [begin, end] : ranges)
      g.output(str("y", begin, "_", end), ops::slice(of, dim, begin, end));
  }
};

TEST(segments, slices_that_tile_an_expression__are_written_by_it) {
  Cut t;
  t.slices({{4, 12}, {0, 4}}, t.y);
  const Graph before = fused(t.g), out = folded(before);
  EXPECT_EQ(out.nodes().size(), 1u);
  EXPECT_EQ(count_loops(out, ops::LoopKind::map), 1);
  expect_equal(before, out);
}

TEST(segments, slices_that_leave_a_gap_or_overlap__stay) {
  for (const int64_t begin : {3, 5}) {
    Cut t;
    t.slices({{0, 4}, {begin, 12}}, t.y);
    EXPECT_EQ(count(folded(fused(t.g)), ops::def::slice()), 2) << begin;
  }
}

TEST(segments, borders_at_odd_channels__stay_unless_all_are_odd) {
  Cut t;
  t.slices({{0, 5}, {5, 12}}, t.y);
  EXPECT_EQ(count(folded(fused(t.g)), ops::def::slice()), 2);
  Graph g;
  const Value y = scaled(g.input("x", f32({3, 7})), g.input("c", f32({7})));
  g.output("y0", ops::slice(y, 1, 0, 2));
  g.output("y1", ops::slice(y, 1, 2, 7));
  EXPECT_EQ(count(folded(fused(g)), ops::def::slice()), 0);
}

TEST(segments, slices_along_another_dim__stay) {
  Cut t;
  t.slices({{0, 1}, {1, 3}}, t.y, 1);
  EXPECT_EQ(count(folded(fused(t.g)), ops::def::slice()), 2);
}

TEST(segments, result_that_others_read__is_not_split) {
  Cut output, reader;
  output.slices({{0, 4}, {4, 12}}, output.y);
  output.g.output("whole", output.y);
  EXPECT_EQ(count(folded(fused(output.g)), ops::def::slice()), 2);
  reader.slices({{0, 4}, {4, 12}}, reader.y);
  reader.g.output("rows", ops::matmul(reader.y, reader.y, {.trans_b = true}));
  EXPECT_EQ(count(folded(fused(reader.g)), ops::def::slice()), 2);
}

// An expression with two results, of which the first is cut; the second.
Value cut_first_of_two(Cut& t) {
  const auto both = ops::pointwise(
      t.g,
      {Expr(2, std::vector<Scalar>{Scalar::input(0) * Scalar::input(1), Scalar::input(0) + 1.0}),
       {},
       DType::f32},
      std::vector<Value>{t.x, t.c});
  t.slices({{0, 4}, {4, 12}}, both[0]);
  return both[1];
}

TEST(segments, two_results_split_alike__are_both_segmented) {
  Cut t;
  const Value second = cut_first_of_two(t);
  t.g.output("a", ops::slice(second, 2, 0, 4));
  t.g.output("b", ops::slice(second, 2, 4, 12));
  const Graph before = fused(t.g), out = folded(before);
  EXPECT_EQ(out.nodes().size(), 1u);
  expect_equal(before, out);
}

TEST(segments, two_results_split_differently__leave_the_second_unsplit) {
  Cut t;
  const Value second = cut_first_of_two(t);
  t.g.output("a", ops::slice(second, 2, 0, 6));
  t.g.output("b", ops::slice(second, 2, 6, 12));
  const Graph before = fused(t.g), out = folded(before);
  EXPECT_EQ(count(out, ops::def::slice()), 2);
  EXPECT_EQ(count_loops(out, ops::LoopKind::map), 1);
  expect_equal(before, out);
}

// Two tensors joined, and the whole.
struct Joined {
  Graph g;
  Value a = g.input("a", f32({2, 3, 4})), b = g.input("b", f32({2, 3, 8}));
  Value c = g.input("c", f32({2, 1, 12})), whole = ops::concat({a, b}, 2);
};

TEST(segments, concatenation_that_expressions_read__is_not_materialised) {
  Joined t;
  t.g.output("y", scaled(t.whole, t.c));
  t.g.output("z", scaled(t.whole, t.g.input("d", f32({2, 3, 12}))));
  const Graph before = fused(t.g), out = folded(before);
  EXPECT_EQ(count(out, ops::def::concat()), 0);
  expect_equal(before, out);
}

TEST(segments, concatenation_that_others_read_later__is_written_by_the_expression) {
  Joined matmul, output, both;
  matmul.g.output("y", scaled(matmul.whole, matmul.c));
  matmul.g.output("z", ops::matmul(matmul.whole, matmul.whole, {.trans_b = true}));
  output.g.output("y", scaled(output.whole, output.c));
  output.g.output("whole", output.whole);
  const Value y = scaled(both.whole, both.c);
  both.g.output("y0", ops::slice(y, 2, 0, 4));
  both.g.output("y1", ops::slice(y, 2, 4, 12));
  both.g.output("whole", both.whole);
  for (const Joined* t : {&matmul, &output, &both}) {
    const Graph before = fused(t->g), out = folded(before);
    EXPECT_EQ(count(out, ops::def::concat()), 0);
    EXPECT_EQ(count(out, ops::def::slice()), 0);
    expect_equal(before, out);
  }
}

// The expression writes the concatenation for the slices, which are not segments of its own
// results.
TEST(segments, concatenation_that_slices_read_later__is_written_by_the_expression) {
  Joined rows, columns, cut;
  const auto later = [](Joined& t, int64_t dim, int64_t end) {
    const Value z = ops::slice(t.whole, dim, 1, end);
    t.g.output("z", ops::matmul(z, z, {.trans_b = true}));
  };
  rows.g.output("y", scaled(rows.whole, rows.c));
  later(rows, 1, 3);
  columns.g.output("y", scaled(columns.whole, columns.c));
  later(columns, 2, 4);
  const Value y = scaled(cut.whole, cut.c);
  cut.g.output("y0", ops::slice(y, 2, 0, 4));
  cut.g.output("y1", ops::slice(y, 2, 4, 12));
  later(cut, 2, 4);
  for (const Joined* t : {&rows, &columns, &cut}) {
    const Graph before = fused(t->g), out = folded(before);
    EXPECT_EQ(count(out, ops::def::concat()), 0);
    EXPECT_EQ(count(out, ops::def::slice()), 1);
    expect_equal(before, out);
  }
}

TEST(segments, concatenation_that_others_read_first__is_materialised) {
  Joined matmul, broadcast;
  const Value z = ops::matmul(matmul.whole, matmul.whole, {.trans_b = true});
  matmul.g.output("y", scaled(matmul.whole, matmul.c));
  matmul.g.output("z", z);
  EXPECT_EQ(count(folded(fused(matmul.g)), ops::def::concat()), 1);
  const Value d = broadcast.g.input("d", f32({4, 2, 3, 12}));
  broadcast.g.output("y", scaled(ops::reshape(broadcast.whole, {1, 2, 3, 12}), d));
  EXPECT_EQ(count(folded(fused(broadcast.g)), ops::def::concat()), 1);
}

TEST(segments, concatenations_with_other_borders__are_not_both_read_as_segments) {
  Joined t;
  const Value d = ops::concat({t.b, t.a}, 2);
  t.g.output("y", scaled(t.whole, d));
  const Graph before = fused(t.g), out = folded(before);
  EXPECT_EQ(count(out, ops::def::concat()), 1);
  expect_equal(before, out);
}

TEST(segments, expression_between_a_concatenation_and_slices__is_segmented_on_both_sides) {
  Joined alike, unlike;
  for (auto [t, border] : {std::pair(&alike, int64_t{4}), {&unlike, int64_t{6}}}) {
    const Value y = scaled(t->whole, t->c);
    t->g.output("y0", ops::slice(y, 2, 0, border));
    t->g.output("y1", ops::slice(y, 2, border, 12));
    const Graph before = fused(t->g), out = folded(before);
    EXPECT_EQ(count(out, ops::def::slice()), border == 4 ? 0 : 2);
    EXPECT_EQ(count(out, ops::def::concat()), 0);
    expect_equal(before, out);
  }
}

TEST(segments, without_a_kernel__nothing_changes) {
  Joined t;
  const Value y = scaled(t.whole, t.c);
  t.g.output("y0", ops::slice(y, 2, 0, 4));
  t.g.output("y1", ops::slice(y, 2, 4, 12));
  const Graph out = folded(fused(t.g), false);
  EXPECT_EQ(count(out, ops::def::slice()), 2);
  EXPECT_EQ(count(out, ops::def::concat()), 1);
}

// The up path of a U-Net: a norm of joined tensors. No slice is left of its gradient.
TEST(segments, gradient_of_a_norm_of_segments__is_segmented) {
  Graph g;
  const Value a = g.source(Source::Kind::param, "a", f32({2, 4, 4, 8}));
  const Value b = g.source(Source::Kind::param, "b", f32({2, 4, 4, 4}));
  const Value y = ops::silu(ops::group_norm(ops::concat({a, b}, 3), {}, {}, {.groups = 3}));
  g.output("loss",
           ops::reshape(ops::sum(scaled(y, g.input("dy", f32({2, 4, 4, 12}))), {0, 1, 2, 3}), {}));
  const std::string wrt[] = {"a", "b"};
  const Graph before = fused(gradients(g, "loss", wrt)), out = folded(before);
  EXPECT_EQ(count(before, ops::def::slice()), 2);
  EXPECT_EQ(count(out, ops::def::slice()), 0);
  expect_equal(before, out);
}

TEST(segments, norm_of_a_concatenation__reads_segments_and_writes_the_concatenation_for_a_matmul) {
  Graph g;
  const Value a = g.source(Source::Kind::param, "a", f32({2, 4, 4, 8}));
  const Value b = g.source(Source::Kind::param, "b", f32({2, 4, 4, 4}));
  const Value x = ops::concat({a, b}, 3);
  const Value h = ops::silu(ops::group_norm(x, {}, {}, {.groups = 3}));
  const Value w = g.input("w", f32({12, 12}));
  const Value of_h = ops::linear(h, w, {}), of_x = ops::linear(x, w, {});  // behind the norm
  const Value y = of_h + of_x;
  g.output("loss", ops::reshape(ops::sum(scaled(y, y), {0, 1, 2, 3}), {}));
  const std::string wrt[] = {"a", "b"};
  const auto all = [](const Signature&) { return true; };
  const Graph before = fuse_loops(fused(gradients(g, "loss", wrt)), {all}), out = folded(before);
  EXPECT_EQ(count_loops(before, ops::LoopKind::pixels), 2);
  EXPECT_EQ(count_loops(out, ops::LoopKind::pixels), 2);
  EXPECT_EQ(count(out, ops::def::concat()), 0);
  EXPECT_EQ(count(out, ops::def::slice()), 0);
  expect_equal(before, out);
}

// ---- types -------------------------------------------------------------------------------------

TEST(loop, segments_that_do_not_fit__are_errors) {
  const Scalar x = Scalar::input(0);
  const Scalar results[] = {x * x};
  const auto attrs = [&](ops::Segments p) {
    return ops::Loop{.expr = Expr(1, results),
                     .shape = {2, 12},
                     .results = {{DType::f32}},
                     .segments = std::move(p)};
  };
  Graph g;
  const Value a = g.input("a", f32({2, 4})), b = g.input("b", f32({2, 8}));
  const auto add = [&](const ops::Loop& p, std::vector<Value> in) {
    return g.add(ops::def::loop(), p, in);
  };
  EXPECT_EQ(add(attrs({{4, 8}, {0}, {}}), {a, b})[0].shape(), (Shape{2, 12}));
  EXPECT_THROW(add(attrs({{8, 4}, {0}, {}}), {a, b}), Error);
  EXPECT_THROW(add(attrs({{4, 8}, {0}, {}}), {a}), Error);
  EXPECT_THROW(add(attrs({{4, 7}, {0}, {}}), {a, b}), Error);
  EXPECT_THROW(add(attrs({{12}, {0}, {}}), {a}), Error);
  EXPECT_THROW(add(attrs({{}, {0}, {}}), {a}), Error);
  EXPECT_THROW(add(attrs({{4, 8}, {1}, {}}), {a, b}), Error);
  EXPECT_THROW(add(attrs({{4, 8}, {0}, {1}}), {a, b}), Error);
}

}  // namespace
}  // namespace ebb::test::views_test
