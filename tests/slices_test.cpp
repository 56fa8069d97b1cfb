// Slices of tensors: what the pass folds and what it leaves, and that the meaning stays.
#include "passes/views/elide_copies.h"

#include <gtest/gtest.h>

#include "ir/iteration_space.h"
#include "ir/text.h"
#include "ops/group_affine/op.h"
#include "ops/group_affine_grad/op.h"
#include "ops/group_norm/op.h"
#include "ops/layer_norm/op.h"
#include "ops/loop/op.h"
#include "ops/modulate/op.h"
#include "ops/prim/concat/op.h"
#include "ops/prim/matmul/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/slice/op.h"
#include "ops/silu/op.h"
#include "ops/split/op.h"
#include "ops/table.h"
#include "passes/fusion/fuse_loops.h"
#include "passes/fusion/inline_producers.h"
#include "passes/gradients.h"
#include "passes/simplify.h"
#include "runtime/context.h"
#include "support/graphs.h"
#include "support/same_results.h"

namespace ebb::test::slices_test {
namespace {

// The graph as it comes to the pass: a device has kernels for split.
Graph fused(const Graph& g) {
  const Graph low = lower(g, [](const Signature& s) {
    return s.op->reference != nullptr || s.op == &ops::def::split() ||
           s.op == &ops::def::group_affine() || s.op == &ops::def::group_affine_grad();
  });
  return dead_code(inline_producers(common_subexpressions(dead_code(low)), {60, true}));
}
Graph folded(const Graph& g,
             const std::function<bool(const Signature&)>& supports = all_supported) {
  Graph out = elide_copies(g, supports);
  verify(out, "columns");
  return out;
}
int64_t cuts(const Graph& g) { return count(g, ops::def::slice()) + count(g, ops::def::split()); }

// x [2,3,8], and what is cut, t [2,24].
struct AsRow {
  Graph g;
  Value x = g.input("x", f32({2, 3, 8})), t = g.input("t", f32({2, 24}));
  static Value row(Value v) { return ops::reshape(v, {2, 1, v.shape()[-1]}); }
  Value slice(int64_t begin, int64_t end) const { return ops::slice(t, 1, begin, end); }
};

TEST(slices, split_that_expressions_read__is_not_made) {
  AsRow c;
  const auto parts = ops::split(c.t, 1, 3);
  c.g.output("y", scaled(scaled(c.x, AsRow::row(parts[0])), AsRow::row(parts[2])));
  c.g.output("z", scaled(parts[1], parts[1]));
  const Graph before = fused(c.g), out = folded(before);
  EXPECT_EQ(cuts(before), 1);
  EXPECT_EQ(cuts(out), 0);
  EXPECT_EQ(count_loops(out, ops::LoopKind::map), 2);
  expect_equal(before, out);
}

TEST(slices, slices__are_folded_each_by_itself) {
  AsRow c;
  const Value used = c.slice(8, 16), kept = c.slice(16, 24);
  c.g.output("y", scaled(c.x, AsRow::row(used)));
  c.g.output("z", scaled(c.x, AsRow::row(kept)));
  c.g.output("kept", kept);
  const Graph before = fused(c.g), out = folded(before);
  EXPECT_EQ(cuts(before), 2);
  EXPECT_EQ(cuts(out), 1);
  EXPECT_EQ(count_loops(out, ops::LoopKind::map), 1);
  expect_equal(before, out);
}

TEST(slices, split_that_others_read_too__is_made_for_all) {
  AsRow matmul, output, moved;
  for (AsRow* c : {&matmul, &output, &moved}) {
    const auto parts = ops::split(c->t, 1, 3);
    c->g.output("y", scaled(c->x, AsRow::row(parts[0])));
    if (c == &matmul) c->g.output("p", ops::matmul(parts[1], parts[2], {.trans_b = true}));
    if (c == &output) c->g.output("part", AsRow::row(parts[0]));
    if (c == &moved)
      c->g.output("m", scaled(ops::reshape(parts[1], {2, 2, 4}), c->g.input("d", f32({2, 2, 4}))));
    const Graph before = fused(c->g), out = folded(before);
    EXPECT_EQ(cuts(out), c == &moved ? 0 : 1);  // under its other shape it is a range as well
    EXPECT_EQ(count_loops(out, ops::LoopKind::map), c == &moved ? 2 : 0);
    expect_equal(before, out);
  }
}

TEST(slices, other_dims__are_views_and_odd_places_stay) {
  AsRow rows, odd, all_odd;
  rows.g.output("y", scaled(ops::slice(rows.x, 1, 1, 3), ops::slice(rows.x, 1, 0, 2)));
  odd.g.output("y", scaled(odd.x, AsRow::row(odd.slice(3, 11))));
  EXPECT_EQ(cuts(folded(fused(rows.g))), 0);
  expect_equal(fused(rows.g), folded(fused(rows.g)));
  EXPECT_EQ(cuts(folded(fused(odd.g))), 1);
  all_odd.g.output("y",
                   scaled(all_odd.g.input("w", f32({2, 3, 7})), AsRow::row(all_odd.slice(3, 10))));
  const Graph before = fused(all_odd.g), out = folded(before);
  EXPECT_EQ(cuts(out), 0);
  expect_equal(before, out);
}

TEST(slices, operands_that_the_kernel_does_not_take__are_cut_for_it) {
  AsRow c;
  c.g.output("y", scaled(scaled(c.x, AsRow::row(c.slice(0, 8))), AsRow::row(c.slice(8, 16))));
  EXPECT_EQ(cuts(folded(fused(c.g), none_supported)), 2);
  const auto one = [](const Signature& s) { return s.as<ops::Loop>().slices.operands.size() < 2; };
  const Graph before = fused(c.g), out = folded(before, one);
  EXPECT_EQ(cuts(out), 1);
  expect_equal(before, out);
}

TEST(slices, expression_of_segments__reads_slices_too) {
  AsRow c;
  const Value whole = ops::concat({c.x, c.g.input("b", f32({2, 3, 8}))}, 2);
  c.g.output("y", scaled(whole, AsRow::row(c.slice(8, 24))));
  const Graph before = fused(c.g), out = folded(before);
  EXPECT_EQ(out.nodes().size(), 2u);  // and a reshape
  expect_equal(before, out);
}

// The gradients of all params of a network behind `y`, which need it.
Graph gradients_behind(Graph& g, Value y) {
  const int64_t c = y.shape()[-1];
  const Value end = ops::matmul(y, g.input("w", f32({c, c})), {});
  const Value dy = g.input("dy", f32(y.shape()));
  sum_as_loss(g, ops::map({end, dy}, [](auto v) { return v[0] * v[0] * v[1]; }));
  const std::string wrt[] = {"x", "m"};
  return gradients(g, "loss", wrt);
}

// Numbers for the channels of x [2,...,C], `count` for each, as networks make them of an embedding.
std::vector<Value> modulations(Graph& g, int64_t channels, int64_t count) {
  const Value m = g.source(Source::Kind::param, "m", f32({count * channels, 8}));
  return ops::split(ops::linear(g.input("e", f32({2, 8})), m, {}), 1, count);
}

TEST(slices, modulated_norm_of_images__reads_scale_and_shift_where_they_lie) {
  Graph g;
  const Value x = g.source(Source::Kind::param, "x", f32({2, 4, 4, 16}));
  const auto parts = modulations(g, 16, 2);
  const Value h = ops::group_norm(x, {}, {}, {.groups = 4});
  const Value y = ops::silu(ops::modulate(h, parts[1], parts[0]));
  const Graph before = fuse_loops(fused(gradients_behind(g, y)), {all_supported});
  const Graph out = folded(before);
  EXPECT_EQ(count_loops(before, ops::LoopKind::pixels), 2);
  EXPECT_EQ(cuts(before), 1);
  EXPECT_EQ(cuts(out), 0);
  expect_equal(before, out);
}

TEST(slices, modulated_norm_of_rows__reads_modulations_where_they_lie) {
  Graph g;
  const Value x = g.source(Source::Kind::param, "x", f32({2, 5, 96}));
  const auto parts = modulations(g, 96, 2);
  const Value y = ops::modulate(ops::layer_norm(x, {}, {}, {}), parts[0], parts[1]);
  const Graph before = fuse_loops(fused(gradients_behind(g, y)), {all_supported});
  const Graph out = folded(before);
  EXPECT_EQ(count_loops(before, ops::LoopKind::rows), 2);
  EXPECT_EQ(cuts(before), 1);
  EXPECT_EQ(cuts(out), 0);
  expect_equal(before, out);
}

// ---- the word ----------------------------------------------------------------------------------

TEST(slices, text__is_read_as_it_was_printed) {
  AsRow c;
  c.g.output("y", scaled(c.x, AsRow::row(c.slice(8, 16))));
  const Graph out = folded(fused(c.g));
  const std::string text = to_text(out);
  EXPECT_NE(text.find("sliced=[1] begin=[8] end=[16]"), std::string::npos) << text;
  EXPECT_EQ(to_text(parse_graph(text, find_op)), text);
}

TEST(slices, that_do_not_fit__are_errors) {
  const Scalar results[] = {Scalar::input(0) * Scalar::input(1)};
  Graph g;
  const Value x = g.input("x", f32({2, 4})), t = g.input("t", f32({2, 8}));
  const auto add = [&](const ops::Slices& c, const ops::Segments& p = {}) {
    const ops::Loop a{.expr = Expr(2, results),
                      .shape = {2, 4},
                      .results = {{DType::f32}},
                      .segments = p,
                      .slices = c};
    return g.add(ops::def::loop(), a, std::vector<Value>{x, t})[0];
  };
  EXPECT_EQ(add({{1}, {4}, {8}}).shape(), (Shape{2, 4}));
  for (const ops::Slices& c : std::vector<ops::Slices>{{{1}, {5}, {9}},
                                                       {{1}, {4}, {4}},
                                                       {{1}, {-1}, {3}},
                                                       {{2}, {0}, {4}},
                                                       {{1, 1}, {0, 0}, {4, 4}},
                                                       {{1}, {4}, {}},
                                                       {{}, {4}, {8}},
                                                       {{1}, {0}, {3}},
                                                       {}})
    EXPECT_THROW(add(c), Error);
  EXPECT_THROW(add({{0}, {0}, {4}}, {{2, 2}, {0}, {}}), Error);
}

TEST(slices, that_kernels_cannot_step_over__have_none) {
  const std::vector<const Kernel*> kernels = kernels_of("loop", "cuda");
  if (kernels.empty()) GTEST_SKIP() << "built without CUDA";
  const Context any = open_context("cpu", {.threads = 1});
  const Scalar results[] = {Scalar::input(0) * Scalar::input(1)};
  const auto supports = [&](Shape x, int64_t width) {
    const ops::Loop a{.expr = Expr(2, results),
                      .shape = x.sizes(),
                      .results = {{DType::f32}},
                      .slices = {{1}, {0}, {x[-1]}}};
    Shape whole = x;
    whole[-1] = width;
    Signature s{&ops::def::loop(), a, {f32(x), f32(whole)}, {}, ""};
    s.out = s.op->infer(s);
    return kernels[0]->supports(s, *any.device);
  };
  EXPECT_TRUE(supports({2, 4, 4, 8}, 16));
  // variances learned for grey images: there it would step from element to element
  EXPECT_FALSE(supports({2, 4, 4, 1}, 2));
  constexpr int64_t rows = 1 << 14, width = 1 << 14;
  EXPECT_TRUE(supports({2, rows, width}, 4 * width));
  EXPECT_FALSE(supports({2, rows, width}, 8 * width));  // by 2^31, and 2^32 elements in all
}

TEST(slices, space__steps_over_the_rest_of_the_rows) {
  const Type in[] = {f32({2, 1, 8}), f32({2, 3, 8}), f32({2, 3, 8})};
  const Pitch pitches[] = {{8, 24}, {}, {8, 16}};
  const IterationSpace s = make_iteration_space({2, 3, 8}, in, {false, false, false}, pitches);
  EXPECT_EQ(s.sizes, (std::vector<int64_t>{2, 3, 8}));
  EXPECT_EQ(s.strides[0], (std::vector<int64_t>{24, 0, 1}));
  EXPECT_EQ(s.strides[1], (std::vector<int64_t>{24, 8, 1}));
  EXPECT_EQ(s.strides[2], (std::vector<int64_t>{48, 16, 1}));
}

}  // namespace
}  // namespace ebb::test::slices_test
