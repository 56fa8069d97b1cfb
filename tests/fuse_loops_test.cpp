// fuse_loops over pixels: group norms and their gradients; and of maps. Along rows:
// passes_test.cpp.
#include "passes/fusion/fuse_loops.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "ir/loop_form.h"
#include "ops/group_affine/op.h"
#include "ops/group_affine_grad/op.h"
#include "ops/group_norm/op.h"
#include "ops/loop/op.h"
#include "ops/prim/concat/op.h"
#include "ops/prim/matmul/op.h"
#include "ops/prim/moments/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reduce/op.h"
#include "ops/silu/op.h"
#include "ops/sqrt/op.h"
#include "passes/fusion/inline_producers.h"
#include "passes/gradients.h"
#include "passes/lower.h"
#include "passes/simplify.h"
#include "support/graphs.h"
#include "support/same_results.h"

namespace ebb::test::fuse_loops_test {
namespace {

// As a plan does it for a device with kernels for images and for what group norms are made of.
Graph with_images(const Graph& g, bool (*supports)(const Signature&) = all_supported,
                  bool apart = false) {
  const auto kept = [](const Signature& s) {
    return s.op->reference != nullptr || s.op == &ops::def::group_affine() ||
           s.op == &ops::def::group_affine_grad();
  };
  const Graph fused =
      dead_code(inline_producers(common_subexpressions(lower(g, kept)), {60, true}));
  Graph out = fuse_loops(fused, {supports, apart});
  verify(out, "images");
  return out;
}

const Shape small = {2, 3, 5, 12};

Value norm_of(Graph& g, Value x, int64_t groups = 4) {
  const Shape c{x.shape()[-1]};
  return ops::group_norm(x, g.input("gamma", f32(c)), g.input("beta", f32(c)), {groups, 1e-5});
}

// The gradients of a loss behind a layer that takes y; they need the layer's result.
Graph gradients_of(Graph& g, Value y, std::initializer_list<std::string> wrt) {
  const int64_t c = y.shape()[-1];
  const Value end = ops::matmul(y, g.input("w", f32({c, c})), {});
  const Value matmul =
      ops::map({end, g.input("dy", f32(y.shape()))}, [](auto v) { return v[0] * v[0] * v[1]; });
  sum_as_loss(g, matmul);
  const std::vector<std::string> names(wrt);
  return gradients(g, "loss", names);
}

TEST(images, group_norm_with_an_activation__is_one_piece_of_work) {
  Graph g;
  g.output("y", ops::silu(norm_of(g, g.input("x", f32(small)))));
  const Graph out = with_images(g);
  EXPECT_EQ(out.nodes().size(), 1u);
  EXPECT_EQ(count_loops(out, ops::LoopKind::pixels), 1);
  expect_equal(g, out);
}

TEST(images, gradient_of_a_group_norm__is_one_piece_of_work_and_a_sum_over_images) {
  Graph g;
  const Value y = ops::silu(norm_of(g, g.input("x", f32(small))));
  const Graph backward = gradients_of(g, y, {"x", "gamma", "beta"}), out = with_images(backward);
  EXPECT_EQ(count_loops(out, ops::LoopKind::pixels), 2);
  EXPECT_EQ(count(out, ops::def::moments()), 0);
  EXPECT_EQ(count(out, ops::def::group_affine()), 0);
  EXPECT_EQ(count(out, ops::def::group_affine_grad()), 0);
  const auto over_images = std::count_if(out.nodes().begin(), out.nodes().end(), [](const Node& n) {
    return n.op == &ops::def::reduce() && n.attrs.as<ops::Reduce>().dims == std::vector<int64_t>{0};
  });
  EXPECT_EQ(over_images, 1);  // gamma's and beta's at once
  expect_equal(backward, out);
}

// Scale and shift for each image, as class- and time-conditional networks have them.
TEST(images, modulation_and_its_sums_over_pixels__join) {
  Graph g;
  const Value x = g.input("x", f32(small)), scale = g.input("scale", f32({2, 1, 1, 12})),
              shift = g.input("shift", f32({2, 1, 1, 12}));
  const Value n = norm_of(g, x);
  const Value y = ops::map({n, scale, shift}, [](auto v) {
    const Scalar u = v[0] * (1.0 + v[1]) + v[2];
    return u * sigmoid(u);
  });
  const Graph backward = gradients_of(g, y, {"x", "gamma", "scale", "shift"}),
              out = with_images(backward);
  EXPECT_EQ(count_loops(out, ops::LoopKind::pixels), 2);
  const auto over_pixels = std::count_if(out.nodes().begin(), out.nodes().end(), [](const Node& o) {
    return o.op == &ops::def::reduce() &&
           o.attrs.as<ops::Reduce>().dims == std::vector<int64_t>{1, 2};
  });
  EXPECT_EQ(over_pixels, 0);
  expect_equal(backward, out);
}

// Slices of the result, of the gradient of a concatenation, are for elide_copies.
TEST(images, gradient_that_is_only_cut__is_one_piece_of_work) {
  Graph g;
  const Value a = g.input("a", f32({2, 3, 5, 8})), b = g.input("b", f32({2, 3, 5, 4}));
  const Value y = norm_of(g, ops::concat({a, b}, 3));
  const Graph backward = gradients_of(g, y, {"a", "b", "gamma"}), out = with_images(backward);
  EXPECT_EQ(count_loops(out, ops::LoopKind::pixels), 2);
  EXPECT_EQ(count(out, ops::def::group_affine_grad()), 0);
  expect_equal(backward, out);
}

TEST(images, sum_over_the_pixels_of_a_result__is_taken_where_it_is_made) {
  Graph g;
  const Value y = norm_of(g, g.input("x", f32(small)));
  g.output("y", y);
  g.output("sum", ops::map(
                      {ops::sum(y, {1, 2})}, [](auto v) { return v[0] * 0.5; }, DType::bf16));
  const Graph out = with_images(g);
  EXPECT_EQ(out.nodes().size(), 1u);
  EXPECT_EQ(out.type(out.outputs()[1].value), (Type{DType::bf16, {2, 1, 1, 12}}));
}

TEST(images, residual_before_a_norm__is_added_there_unless_apart) {
  Graph g;
  residual_and_norm(g, small, [&](Value sum) { return norm_of(g, sum); });
  const Graph out = with_images(g), apart = with_images(g, all_supported, true);
  EXPECT_EQ(out.nodes().size(), 1u);
  EXPECT_EQ(apart.nodes().size(), 2u);
  EXPECT_EQ(count_loops(apart, ops::LoopKind::pixels), 1);
  expect_equal(g, out);
  expect_equal(g, apart);
}

TEST(images, work_between_statistics_and_their_use__keeps_them_apart) {
  Graph g;
  const Value x = g.input("x", f32({2, 3, 5, 12}));
  const auto stats = ops::moments(x, {1, 4});
  const auto a = ops::group_affine(stats.mean, stats.var, {}, {}, {12, 1e-5});
  const Value mixed = ops::matmul(a.scale, g.input("w", f32({12, 12})), {});
  g.output("y", ops::map({x, mixed}, [](auto v) { return v[0] * v[1]; }));
  const Graph out = with_images(g);
  EXPECT_EQ(count_loops(out, ops::LoopKind::pixels), 0);
  expect_equal(g, out);
}

TEST(images, statistics_that_others_want_by_group__keep_the_norm_as_it_is) {
  Graph g;
  const Value x = g.input("x", f32(small));
  g.output("y", norm_of(g, x));
  g.output("mean", ops::moments(x, {1, 4}).mean);
  const Graph out = with_images(g);
  EXPECT_EQ(count_loops(out, ops::LoopKind::pixels), 0);
  expect_equal(g, out);
}

TEST(images, what_no_kernel_serves__stays_as_it_is) {
  Graph g;
  g.output("y", norm_of(g, g.input("x", f32(small))));
  const Graph out = with_images(g, none_supported);
  EXPECT_EQ(count_loops(out, ops::LoopKind::pixels), 0);
  EXPECT_EQ(count(out, ops::def::moments()), 1);
}

// Statistics of one group broadcast to channels, but what a norm makes of them stays with them.
TEST(images, statistics_of_another_loop__are_not_read_as_operands) {
  Graph g;
  const Value x = g.input("x", f32(small)), y = g.input("y", f32(small));
  const auto n = [&](Value v) { return ops::group_norm(v, {}, {}, {.groups = 1}); };
  g.output("z", ops::map({n(x), n(y)}, [](auto v) { return v[0] + v[1]; }));
  const Graph out = with_images(g);
  EXPECT_EQ(count_loops(out, ops::LoopKind::pixels), 1);
  for (const Node& node : out.nodes())
    for (const int32_t v : node.in)
      EXPECT_TRUE(!is_loop(node, ops::LoopKind::pixels) ||
                  out.type(v).shape != (Shape{2, 1, 1, 1}));
  expect_equal(g, out);
}

// ---- the form of an op
// ---------------------------------------------------------------------------

// The root of the sum of squares over dims of [...,T,C].
struct RootOfSquares {
  std::vector<int64_t> dims;
  void fields(auto&& f) { f("dims", dims); }
};

const OpDef& root_of_squares() {
  static const OpDef d{
      .name = "root_of_squares",
      .attrs = +[] { return Attrs(RootOfSquares{}); },
      .infer =
          +[](const Signature& s) {
            Shape out = s.in[0].shape;
            for (const int64_t i : s.as<RootOfSquares>().dims) out[i] = 1;
            return std::vector<Type>{{DType::f32, out}};
          },
      .decompose =
          +[](Graph&, const Signature& s, std::span<const Value> in) {
            const auto& dims = s.as<RootOfSquares>().dims;
            return std::vector<Value>{
                ops::sqrt(ops::sum_of({in[0]}, dims, [](auto v) { return v[0] * v[0]; }))};
          },
      .loop =
          +[](const Signature& s) {
            return std::optional(LoopForm{
                .space = s.in[0].shape,
                .dims = s.as<RootOfSquares>().dims,
                .starts = true,
                .write = +[](const Signature&, std::span<const Scalar> x, LoopReductions& r) {
                  return std::vector<Scalar>{sqrt(r.reduced(x[0] * x[0]))};
                }});
          }};
  return d;
}

TEST(loop_form, op_that_no_pass_knows__joins_along_rows) {
  Graph g;
  const Value x = g.input("x", f32({4, 1024, 64}));
  const Value in[] = {x};
  const Value length = g.add(root_of_squares(), RootOfSquares{{2}}, in)[0];
  g.output("y", ops::map({x, length}, [](auto v) { return v[0] / v[1]; }));
  const Graph out = fuse_loops(
      lower(g, [](const Signature& s) { return s.op->reference || s.op == &root_of_squares(); }),
      {all_supported});
  EXPECT_EQ(out.nodes().size(), 1U);
  EXPECT_EQ(count_loops(out, ops::LoopKind::rows), 1);
  expect_equal(g, out);
}

// Its sums over columns cannot be finished behind a loop of rows: the root comes first there.
TEST(loop_form, op_that_does_more_than_reduce__does_not_join_over_columns) {
  Graph g;
  const Value x = g.input("x", f32({4, 1024, 64}));
  g.output("y", ops::map({x, ops::mean(x, {2})}, [](auto v) { return v[0] - v[1]; }));
  const Value in[] = {x};
  g.output("lengths", g.add(root_of_squares(), RootOfSquares{{1}}, in)[0]);
  const Graph out = fuse_loops(
      lower(g, [](const Signature& s) { return s.op->reference || s.op == &root_of_squares(); }),
      {all_supported});
  EXPECT_EQ(count_loops(out, ops::LoopKind::rows), 1);
  EXPECT_EQ(count(out, root_of_squares()), 1);
}

TEST(loop, attributes_without_meaning__are_errors) {
  const Scalar x = Scalar::input(0), results[] = {x, x - Scalar::input(1)};
  const ops::Loop rows{.expr = Expr(2, results),
                       .reductions = {{ops::LoopReduction::Over::row}},
                       .shape = {3, 64},
                       .results = {{DType::f32}}};
  const auto infer = [](const ops::Loop& a) {
    return ops::def::loop().infer({&ops::def::loop(), a, {f32({3, 64})}, {}, ""});
  };
  EXPECT_NO_THROW(infer(rows));
  for (auto change : std::initializer_list<void (*)(ops::Loop&)>{
           [](ops::Loop& a) { a.groups = 4; }, [](ops::Loop& a) { a.partial_rows = 3; },
           [](ops::Loop& a) {
             a.segments = {{32, 32}, {1}, {}};
           },
           [](ops::Loop& a) { a.reductions.push_back({ops::LoopReduction::Over::pixels}); }}) {
    ops::Loop a = rows;
    change(a);
    EXPECT_THROW(infer(a), Error);
  }
}

// ---- maps, and reductions alone

Graph with_maps(const Graph& g) {
  Graph out = fuse_loops(g, {.supports = all_supported, .reductions = false});
  verify(out, "maps");
  return out;
}

TEST(maps, nodes_that_read_one_tensor__are_one_with_several_results) {
  Graph g;
  const Type t = f32({4, 6});
  const Value x = g.input("x", t), y = g.input("y", t);
  g.output("a", scaled(x, y));
  g.output("b", ops::map({x}, [](auto v) { return exp(v[0]); }));
  g.output("other", ops::map({g.input("z", t)}, [](auto v) { return exp(v[0]); }));
  const Graph out = with_maps(g);
  EXPECT_EQ(count(out, ops::def::pointwise()), 2);
  expect_equal(g, out);
}

TEST(maps, result_that_others_read_too__is_written_where_its_reader_is_computed) {
  Graph g;
  const Value x = g.input("x", f32({4, 6})), y = scaled(x, x);
  g.output("product", ops::matmul(y, g.input("w", f32({6, 6})), {}));
  g.output("z", ops::map({y}, [](auto v) { return v[0] + 1.0; }));
  const Graph out = with_maps(g);
  EXPECT_EQ(count(out, ops::def::pointwise()), 1);
  expect_equal(g, out);
}

TEST(maps, work_between_two_nodes__keeps_them_apart) {
  Graph g;
  const Value x = g.input("x", f32({6, 6})), y = scaled(x, x);
  g.output("z", scaled(x, ops::matmul(y, y, {})));
  const Graph out = with_maps(g);
  EXPECT_EQ(count(out, ops::def::pointwise()), 2);
  expect_equal(g, out);
}

// The reader of a whole number must not see what it was before it was truncated.
TEST(maps, whole_numbers__are_made_and_read_apart) {
  Graph g;
  const Value x = g.input("x", f32({4, 6})),
              n = ops::map(
                  {x}, [](auto v) { return v[0] * 8.0; }, DType::i64);
  g.output("n", n);
  g.output("y", ops::map(
                    {n, x}, [](auto v) { return v[0] + v[1]; }, DType::f32));
  const Graph out = with_maps(g);
  EXPECT_EQ(count(out, ops::def::pointwise()), 2);
  expect_equal(g, out);
}

TEST(maps, reductions__are_one_if_they_reduce_the_same_in_the_same_way) {
  Graph g;
  const Value x = g.input("x", f32({8, 128})), y = g.input("y", f32({8, 128}));
  g.output("a", ops::sum_of({x, y}, {0}, [](auto v) { return v[0] * v[1]; }));
  g.output("b", ops::sum(x, {0}));
  g.output("mean", ops::mean(x, {0}));
  g.output("max", ops::amax(x, {0}));
  g.output("rows", ops::sum(x, {1}));
  g.output("scaled", scaled(x, y));
  const Graph out = with_maps(g);
  EXPECT_EQ(count(out, ops::def::reduce()), 4);
  EXPECT_EQ(count(out, ops::def::pointwise()), 1);
  EXPECT_EQ(out.nodes().size(), 5U);
  expect_equal(g, out);
}

// A variance is a sum of the same tensor over the same dims as the mean that it reads.
TEST(maps, reduction_of_anothers_result__stays_behind_it) {
  Graph g;
  const Value x = g.input("x", f32({8, 128})), sum = ops::sum(x, {1});
  g.output("sum", sum);
  g.output("squares", ops::sum_of({x, sum}, {1}, [](auto v) {
             const Scalar distance = v[0] - v[1] / 128.0;
             return distance * distance;
           }));
  const Graph out = with_maps(g);
  EXPECT_EQ(count(out, ops::def::reduce()), 2);
  expect_equal(g, out);
}

// With the residual no kernel supports the fusion; the norm alone may still be fused.
TEST(images, maker_that_is_too_much__is_left_out) {
  Graph g;
  const Value sum = ops::map({g.input("x", f32(small)), g.input("h", f32(small))},
                             [](auto v) { return v[0] + v[1]; });
  g.output("sum", sum);
  g.output("y", norm_of(g, sum));
  const Graph out = with_images(g, [](const Signature& s) {
    return s.in.size() < 4;  // x or the sum, gamma, beta
  });
  EXPECT_EQ(count_loops(out, ops::LoopKind::pixels), 1);
  EXPECT_EQ(count(out, ops::def::pointwise()), 1);
  expect_equal(g, out);
}

}  // namespace
}  // namespace ebb::test::fuse_loops_test
