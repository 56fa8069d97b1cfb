// Fusion passes: fewer and larger kernels.
#include <gtest/gtest.h>

#include <algorithm>

#include "ops/add/op.h"
#include "ops/layer_norm/op.h"
#include "ops/loop/op.h"
#include "ops/mse/op.h"
#include "ops/prim/attention/op.h"
#include "ops/prim/concat/op.h"
#include "ops/prim/conv2d/op.h"
#include "ops/prim/matmul/op.h"
#include "ops/prim/moments/op.h"
#include "ops/prim/permute/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reduce/op.h"
#include "ops/prim/reshape/op.h"
#include "ops/prim/slice/op.h"
#include "ops/rms_norm/op.h"
#include "passes/fusion/fuse_loops.h"
#include "passes/fusion/inline_producers.h"
#include "passes/fusion/rematerialise.h"
#include "passes/gradients.h"
#include "passes/lower.h"
#include "passes/precision/narrow_results.h"
#include "passes/precision/narrow_weights.h"
#include "passes/simplify.h"
#include "passes/uses.h"
#include "reference.h"
#include "support/graphs.h"
#include "support/same_results.h"

namespace ebb::test::passes_test {
namespace {

Value decayed(Value v) {
  return ops::map({v}, [](auto x) { return x[0] * 0.5; });
}

// A matmul of x with a weight in 16 bits that is widened.
Graph widened_weight(DType stored) {
  Graph g;
  const Value x = g.input("x", f32({2, 3}));
  const Value w = g.source(Source::Kind::param, "w", {stored, {5, 3}});
  g.output("y", ops::linear(x, ops::cast(w, DType::f32)));
  return g;
}

TEST(narrow_weights, weights_in_16_bits__are_read_by_the_matmul_as_they_are) {
  const auto all = [](const Source&) { return true; };
  const auto yes = [](const Signature& with) { return with.in[1].dtype == DType::f16; };
  const Graph g = widened_weight(DType::f16), out = narrow_weights(g, all, all, yes);
  verify(out, "narrow_weights");
  EXPECT_EQ(out.nodes().size(), 1u);
  const RefInputs in = {{"x", ref_array({2, 3}, {1, 2, 3, 4, 5, 6})},
                        {"w", ref_array({5, 3}, std::vector<double>(15, 0.5))}};
  EXPECT_EQ(output_of(out, evaluate_reference(out, in), "y").v,
            output_of(g, evaluate_reference(g, in), "y").v);
}

TEST(narrow_weights, where_no_kernel_reads_them_or_nothing_is_a_weight__stay_widened) {
  const Graph g = widened_weight(DType::f16);
  const auto nodes = [&](bool weights, bool as_stored, bool supported) {
    const auto one = [](bool yes) { return [yes](const auto&) { return yes; }; };
    return narrow_weights(g, one(weights), one(as_stored), one(supported)).nodes().size();
  };
  EXPECT_EQ(nodes(true, true, true), 1u);
  EXPECT_EQ(nodes(false, true, true), 2u);
  EXPECT_EQ(nodes(true, false, true), 2u);
  EXPECT_EQ(nodes(true, true, false), 2u);
}

TEST(narrow_weights, operands_that_decide_a_result_s_dtype_or_must_agree__stay_widened) {
  Graph g;
  const auto weight = [&](std::string_view name, Shape shape) {
    const Value w = g.source(Source::Kind::param, name, {DType::f16, std::move(shape)});
    return ops::cast(w, DType::f32);
  };
  g.output("first", ops::matmul(weight("w", {5, 3}), g.input("x", f32({3, 2})), {}));
  const Value k = weight("k", {1, 4, 1, 8}), v = weight("v", {1, 4, 1, 8});
  g.output("attention", ops::attention(g.input("q", f32({1, 4, 1, 8})), k, v));
  const auto yes = [](const auto&) { return true; };
  const Graph out = narrow_weights(g, yes, yes, yes);
  verify(out, "narrow_weights");
  EXPECT_EQ(out.nodes().size(), g.nodes().size());
}

TEST(narrow_weights, weights_that_others_read_widened__are_there_twice) {
  Graph g;
  const Value w = g.source(Source::Kind::param, "w", {DType::f16, {5, 3}});
  const Value wide = ops::cast(w, DType::f32);
  g.output("y", ops::linear(g.input("x", f32({2, 3})), wide));
  g.output("wide", wide);
  const auto yes = [](const auto&) { return true; };
  const Graph out = narrow_weights(g, yes, yes, yes);
  EXPECT_EQ(out.nodes().size(), 2u);
  EXPECT_EQ(out.type(out.find_source("w")->value).dtype, DType::f16);
  EXPECT_EQ(count(out, ops::def::matmul()), 1);
}

// A product in f32 under another shape, as bf16.
Graph rounded_product(bool row_sums, bool others_read) {
  Graph g;
  const Value in[] = {g.input("a", {DType::bf16, {4, 6}}), g.input("b", {DType::bf16, {4, 8}})};
  const ops::Matmul attrs{.trans_a = true, .dtype = DType::f32, .row_sums = row_sums};
  const std::vector<Value> out = g.add(ops::def::matmul(), attrs, in);
  const Value renamed = ops::reshape(out[0], {2, 3, 8});
  g.output("y", ops::cast(renamed, DType::bf16));
  if (others_read) g.output("wide", renamed);
  if (row_sums) g.output("sums", out[1]);
  return g;
}

TEST(narrow_results, product_behind_a_reshape__is_rounded_by_the_matmul) {
  for (const bool row_sums : {false, true}) {
    const Graph g = rounded_product(row_sums, false);
    const Graph out = narrow_results(g, all_same_cost_class);
    verify(out, "narrow_results");
    EXPECT_EQ(count(out, ops::def::pointwise()), 0) << row_sums;
    EXPECT_EQ(out.type(out.nodes()[0].out[0]).dtype, DType::bf16) << row_sums;
    expect_equal(g, out);
  }
}

TEST(narrow_results, product_that_others_read_or_no_kernel_gives__stays_wide) {
  const Graph read = rounded_product(false, true), apart = rounded_product(false, false);
  EXPECT_EQ(count(narrow_results(read, all_same_cost_class), ops::def::pointwise()), 1);
  EXPECT_EQ(count(narrow_results(apart, no_same_cost_class), ops::def::pointwise()), 1);
}

TEST(narrow_results, results_of_one_expression__are_rounded_each_for_itself) {
  Graph g;
  const Value in[] = {g.input("x", f32({2, 6}))};
  const Scalar x = Scalar::input(0), three[] = {x * 2.0, x + 1.0, -x};
  const std::vector<Value> out = ops::pointwise(
      g, {.expr = Expr(1, three), .dtypes = {DType::f32, DType::f32, DType::f32}}, in);
  g.output("bf16", ops::cast(ops::reshape(out[0], {12}), DType::bf16));
  g.output("f16", ops::cast(ops::reshape(out[1], {3, 4}), DType::f16));
  g.output("f32", out[2]);
  const Graph narrow = narrow_results(g, no_same_cost_class);
  verify(narrow, "narrow_results");
  EXPECT_EQ(count(narrow, ops::def::pointwise()), 1);
  expect_equal(g, narrow);
}

// Weights that are restored from 8 bits and read side by side, for example.
TEST(narrow_results, parts_of_a_concatenation__are_rounded_where_they_are_made) {
  const auto rounded = [](bool of_a_source) {
    Graph g;
    const Value x = g.input("x", f32({2, 6}));
    const Scalar twice[] = {Scalar::input(0) * 2.0}, shifted[] = {Scalar::input(0) + 1.0};
    const auto made = [&](std::span<const Scalar> by) {
      return ops::pointwise(g, {.expr = Expr(1, by), .dtypes = DType::f32}, {&x, 1})[0];
    };
    const Value last = of_a_source ? x : made(shifted);
    g.output("y",
             ops::cast(ops::concat({ops::reshape(made(twice), {2, 6}), last}, 0), DType::bf16));
    return g;
  };
  const Graph all = rounded(false), out = narrow_results(all, no_same_cost_class);
  verify(out, "narrow_results");
  EXPECT_EQ(count(out, ops::def::pointwise()), 2);  // no cast
  expect_equal(all, out);
  const Graph some = rounded(true);  // one part cannot be, so none is
  EXPECT_EQ(narrow_results(some, no_same_cost_class).nodes().size(), some.nodes().size());
}

TEST(narrow_results, copies_of_products_and_of_several_results__are_of_narrow_ones) {
  Graph g;
  const Value in[] = {g.input("a", {DType::bf16, {4, 6}}), g.input("b", {DType::bf16, {4, 8}})};
  const ops::Matmul sums{.trans_a = true, .dtype = DType::f32, .row_sums = true};
  const std::vector<Value> product = g.add(ops::def::matmul(), sums, in);  // [6, 8], [6]
  const Scalar x = Scalar::input(0), two[] = {x * 2.0, x + 1.0};
  const Value wide = g.input("x", f32({6, 8}));
  const std::vector<Value> both =
      ops::pointwise(g, {.expr = Expr(1, two), .dtypes = DType::f32}, {&wide, 1});
  g.output("y",
           ops::cast(ops::concat({both[0], ops::slice(product[0], 0, 1, 3), both[0], both[1]}, 0),
                     DType::bf16));
  g.output("sums", product[1]);
  const Graph out = narrow_results(g, all_same_cost_class);
  verify(out, "narrow_results");
  EXPECT_EQ(count(out, ops::def::pointwise()), 1);                    // no cast
  EXPECT_EQ(out.type(out.outputs().back().value).dtype, DType::f32);  // the sums
  expect_equal(g, out);
}

TEST(narrow_results, sums__are_rounded_where_they_are_made) {
  Graph g;
  const Value x = g.input("x", {DType::bf16, {40, 6}});
  g.output("columns", ops::cast(ops::reshape(ops::sum(x, {0}), {6}), DType::bf16));
  g.output("rows", ops::cast(ops::amax(x, {1}), DType::f16));
  g.output("all", ops::sum(x, {0, 1}));
  const Graph out = narrow_results(g, no_same_cost_class);
  verify(out, "narrow_results");
  EXPECT_EQ(count(out, ops::def::pointwise()), 0);
  EXPECT_EQ(count(out, ops::def::reduce()), 3);
  expect_equal(g, out);
}

TEST(merge_casts, statistics_of_a_widened_value__are_of_the_value) {
  Graph g;
  const Value x = g.input("x", {DType::bf16, {3, 8}});
  const ops::MeanVar m = ops::moments(ops::cast(x, DType::f32), {.axis = 1});
  g.output("mean", m.mean);
  g.output("var", m.var);
  const Graph out = merge_casts(g, all_supported);
  verify(out, "merge_casts");
  EXPECT_EQ(out.nodes().size(), 1u);
  expect_equal(g, out);
  EXPECT_EQ(merge_casts(g, none_supported).nodes().size(), 2u);
}

TEST(merge_casts, operands_that_decide_a_results_dtype_or_precision__stay_widened) {
  Graph g;
  const Value x = ops::cast(g.input("x", {DType::bf16, {3, 8}}), DType::f32);
  g.output("turned", ops::permute(x, {1, 0}));
  g.output("product", ops::matmul(g.input("a", f32({2, 3})), x));
  EXPECT_EQ(merge_casts(g, all_supported).nodes().size(), 3u);
}

TEST(inline_producers, sums_of_one__are_part_of_the_expressions_around_them) {
  Graph g;
  const Value x = g.input("x", f32({1, 8})), y = g.input("y", f32({1, 8}));
  const Scalar xy[] = {Scalar::input(0) * Scalar::input(1)};
  const Value in[] = {x, y};
  const Value sum = ops::reduce(g, {.expr = Expr(2, xy), .dims = {0}, .scale = 0.5}, in)[0];
  g.output("sum", decayed(sum));
  g.output("max", decayed(ops::amax(scaled(x, x), {0})));
  const Graph out = inline_producers(g, {});
  verify(out, "inline_producers");
  EXPECT_EQ(count(out, ops::def::reduce()), 0);
  EXPECT_EQ(out.nodes().size(), 2u);
  expect_equal(g, out);
}

// x [4,128] times a number a row that an expression makes of `rows` [4,1].
Graph scaled_rows(bool sum_over_rows) {
  Graph g;
  const Value x = g.input("x", f32({4, 128})), rows = g.input("rows", f32({4, 1}));
  const Value r = ops::map({rows}, [](auto v) { return rsqrt(v[0] + 1.0); });
  const auto product = [](auto v) { return v[0] * v[1]; };
  g.output("y", ops::map({x, r}, product));
  if (sum_over_rows) g.output("s", ops::sum_of({x, r}, {0}, product));
  return g;
}

// The gradient of a product: one factor's is final, the other's is read by one expression.
TEST(inline_producers, one_of_several_results__is_part_of_its_reader) {
  Graph g;
  const Type t = f32({4, 64});
  const Value a = g.input("a", t), b = g.input("b", t), dy = g.input("dy", t);
  const Scalar results[] = {Scalar::input(2) * Scalar::input(1),
                            Scalar::input(2) * Scalar::input(0)};
  const Value in[] = {a, b, dy};
  const auto d = ops::pointwise(g, {Expr(3, results), t.shape.sizes(), DType::f32}, in);
  g.output("da", d[0]);
  g.output("db", ops::map({b, d[1]}, [](auto v) { return v[1] * exp(v[0]); }));
  const Graph out = inline_producers(g, {});
  verify(out, "inline_producers");
  EXPECT_EQ(out.nodes().size(), 2u);
  for (const Node& n : out.nodes()) EXPECT_EQ(n.out.size(), 1u);
  expect_equal(g, out);
}

TEST(inline_producers, number_of_a_row__is_computed_where_rows_are_read) {
  EXPECT_EQ(count(inline_producers(scaled_rows(false), {.hoists_row_scalars = true}),
                  ops::def::pointwise()),
            1);
  EXPECT_EQ(count(inline_producers(scaled_rows(false), {.hoists_row_scalars = false}),
                  ops::def::pointwise()),
            2);
}

TEST(inline_producers, number_of_a_row__is_kept_for_sums_across_rows) {
  EXPECT_EQ(count(inline_producers(scaled_rows(true), {.hoists_row_scalars = true}),
                  ops::def::pointwise()),
            2);
}

// ---- rows ----------------------------------------------------------------------------------

// As a plan does it for a device with a kernel for rows.
Graph with_rows(const Graph& g, bool apart = false) {
  const Graph fused =
      dead_code(inline_producers(common_subexpressions(in_primitives(g)), {60, true}));
  Graph out = fuse_loops(fused, {all_supported, apart});
  verify(out, "rows");
  return out;
}

Graph layer_norm_graph(const Shape& shape) {
  Graph g;
  const Value gamma = g.input("gamma", f32({shape[-1]})), beta = g.input("beta", f32({shape[-1]}));
  g.output("y", ops::layer_norm(g.input("x", f32(shape)), gamma, beta, {}));
  return g;
}

TEST(rows, layer_norm_and_its_gradient__are_one_piece_of_work) {
  const Graph g = layer_norm_graph({3, 5, 96}), out = with_rows(g);
  EXPECT_EQ(out.nodes().size(), 1u);
  EXPECT_EQ(count_loops(out, ops::LoopKind::rows), 1);
  expect_equal(g, out);

  Graph forward = layer_norm_graph({3, 5, 96});
  const Value y = forward.take_output("y");
  forward.output("y", y);
  const Value product =
      ops::map({y, forward.input("dy", f32({3, 5, 96}))}, [](auto v) { return v[0] * v[1]; });
  sum_as_loss(forward, product);
  const std::string wrt[] = {"x", "gamma"};
  const Graph backward = gradients(forward, "loss", wrt), joined = with_rows(backward);
  EXPECT_EQ(count_loops(joined, ops::LoopKind::rows), 1);
  EXPECT_EQ(count(joined, ops::def::moments()), 0);
  expect_equal(backward, joined);
}

TEST(rows, residual_before_a_norm__is_added_there_unless_apart) {
  Graph g;
  residual_and_norm(g, {4, 128}, [](Value sum) { return ops::rms_norm(sum, {}, {}); });
  const Graph out = with_rows(g), apart = with_rows(g, true);
  EXPECT_EQ(out.nodes().size(), 1u);
  EXPECT_EQ(apart.nodes().size(), 2u);
  EXPECT_EQ(count_loops(apart, ops::LoopKind::rows), 1);
  expect_equal(g, out);
  expect_equal(g, apart);
}

TEST(rows, number_of_a_row_that_others_read__is_written_too) {
  Graph g;
  const Value x = g.input("x", f32({4, 128}));
  const Value r = ops::map({ops::mean(x, {1})}, [](auto v) { return exp(v[0]); });
  g.output("y", ops::map({x, r}, [](auto v) { return v[0] * v[1]; }));
  g.output("r", r);
  const Graph out = with_rows(g);
  EXPECT_EQ(out.nodes().size(), 1u);
  expect_equal(g, out);
}

TEST(rows, work_between_the_sum_and_its_use__keeps_them_apart) {
  Graph g;
  const Value x = g.input("x", f32({64, 64}));
  const Value s = ops::sum(x, {1});
  const Value t = ops::matmul(x, s, {});  // [64,1], of all rows
  g.output("y", ops::map({x, s, t}, [](auto v) { return v[0] * v[1] + v[2]; }));
  EXPECT_EQ(count_loops(with_rows(g), ops::LoopKind::rows), 0);
}

TEST(rows, two_groups_that_would_wait_for_each_other__are_not_both_made) {
  Graph g;
  const Value x = g.input("x", f32({64, 64})), y = g.input("y", f32({64, 64}));
  const Value a = ops::sum(x, {1}), b = ops::sum(y, {1});
  // x's second member needs y's sum turned over, and the other way round
  const auto turned = [](Value v) { return ops::matmul(v, v, {.trans_b = true}); };
  const Value of_a = turned(a), of_b = turned(b);
  const auto join = [](auto v) { return v[0] * v[1] + v[2]; };
  g.output("u", ops::map({x, a, of_b}, join));
  g.output("v", ops::map({y, b, of_a}, join));
  const Graph out = with_rows(g);
  EXPECT_EQ(count_loops(out, ops::LoopKind::rows), 1);
  expect_equal(g, out);
}

TEST(rows, short_rows_sums_across_rows_and_unserved_ones__stay_as_they_are) {
  EXPECT_EQ(count_loops(with_rows(layer_norm_graph({5, 24})), ops::LoopKind::rows), 0);
  Graph g;
  const Value x = g.input("x", f32({128, 128}));
  g.output("y", ops::map({x, ops::sum(x, {0})}, [](auto v) { return v[0] * v[1]; }));
  EXPECT_EQ(count_loops(with_rows(g), ops::LoopKind::rows), 0);
  const Graph none = fuse_loops(in_primitives(layer_norm_graph({3, 96})), {none_supported});
  EXPECT_EQ(count_loops(none, ops::LoopKind::rows), 0);
}

TEST(rows, sums_across_rows__are_begun_where_the_rows_are) {
  Graph forward = layer_norm_graph({4, 1024, 64});
  const Value y = forward.take_output("y");
  const Value product =
      ops::map({y, forward.input("dy", f32({4, 1024, 64}))}, [](auto v) { return v[0] * v[1]; });
  sum_as_loss(forward, product);
  const std::string wrt[] = {"x", "gamma", "beta"};
  Graph g = gradients(forward, "loss", wrt);
  g.take_output("loss");
  const Graph out = with_rows(g);
  EXPECT_EQ(count_loops(out, ops::LoopKind::rows), 1);
  ASSERT_EQ(count(out, ops::def::reduce()), 1);
  for (const Node& n : out.nodes())
    if (n.op == &ops::def::reduce()) {
      EXPECT_EQ(out.type(n.in[0]).shape, (Shape{4, 64, 64}));  // stripes of 16 rows
    }
  expect_equal(g, out);
}

TEST(rows, sum_across_rows_that_the_rows_are_made_of__stays_outside) {
  Graph g;
  const Value x = g.input("x", f32({4, 1024, 64}));
  const Value a = ops::sum(x, {1});  // [4,1,64]
  const Value y = ops::map({x, a}, [](auto v) { return v[0] * v[0] + v[1]; });
  const Value z = ops::map({y, ops::mean(y, {2})}, [](auto v) { return v[0] - v[1]; });
  g.output("z", z);
  expect_equal(g, with_rows(g));
}

TEST(inline_producers, expression_of_many_tensors__is_not_computed_by_each_reader) {
  // dx takes x, dy and r: as many reads as to write it and read it twice
  Graph g;
  const Shape shape{64, 64};
  const Value x = g.input("x", f32(shape)), dy = g.input("dy", f32(shape)),
              r = g.input("r", f32(shape));
  const Value s = ops::sum_of({x, dy}, {1}, [](auto v) { return v[0] * v[1]; });
  const Value dx = ops::map({x, dy, r, s}, [](auto v) { return v[0] * v[3] + v[1] + v[2]; });
  g.output("a",
           ops::sum_of({dx, g.input("h", f32(shape))}, {0}, [](auto v) { return v[0] * v[1]; }));
  g.output("b", ops::map({dx, g.input("k", f32(shape))}, [](auto v) { return v[0] * v[1]; }));
  EXPECT_EQ(count(inline_producers(g, {60, true}), ops::def::pointwise()), 2);
}

// ---- rematerialise
// ---------------------------------------------------------------------------------

// x + gate * linear(layer_norm(x)), five times, a gate for each sample; or the gate times its sine.
Graph gated_branches(const Shape& shape, bool gates_learn = true, bool bent = false) {
  Graph g;
  Value x = g.input("x0", f32(shape));
  std::vector<std::string> wrt;
  for (int64_t i = 0; i < 5; ++i) {
    const int64_t c = shape[-1];
    const std::string gate = str("gate", i), weight = str("weight", i);
    wrt.push_back(weight);
    if (gates_learn) wrt.push_back(gate);
    const Value w = g.source(Source::Kind::param, weight, f32({c, c}));
    const Value by = g.source(Source::Kind::param, gate, f32({shape[0], 1, c}));
    const Value f = ops::linear(ops::layer_norm(x, {}, {}, {}), w, {});
    x = ops::map({x, by, f}, [&](auto v) { return v[0] + v[1] * (bent ? sin(v[2]) : v[2]); });
  }
  g.output("loss", ops::mse(x, g.input("target", f32(shape))));
  return gradients(g, "loss", wrt);
}

// Rows that the forward pass makes and the backward pass reads, too.
int64_t rows_kept(const Graph& g) {
  const size_t end = end_of(g, "loss").value();
  const Uses uses(g);
  int64_t n = 0;
  for (size_t i = 0; i < end; ++i)
    for (const int32_t v : g.nodes()[i].out) {
      const auto& readers = uses.readers(v);
      n += is_loop(g.nodes()[i], ops::LoopKind::rows) && readers.lower_bound(end) != readers.end();
    }
  return n;
}

TEST(rematerialise, every_other_sum_of_gated_branches__is_rematerialised_at_its_reader) {
  const Graph g = gated_branches({4, 1024, 64}), joined = with_rows(g);
  const Graph out = rematerialise(joined, "loss", all_supported);
  verify(out, "rematerialise");
  EXPECT_EQ(rows_kept(joined) - rows_kept(out), 2);  // of four; the loss reads the fifth
  EXPECT_EQ(out.nodes().size(), joined.nodes().size());
  expect_equal(g, out);
}

TEST(rematerialise, sums_with_functions_that_devices_approximate__are_kept) {
  const Graph joined = with_rows(gated_branches({4, 1024, 64}, true, true));
  EXPECT_EQ(rows_kept(rematerialise(joined, "loss", all_supported)), rows_kept(joined));
}

TEST(rematerialise, sums_that_would_cost_reads_or_have_no_kernel__are_kept) {
  const Graph still = with_rows(gated_branches({4, 1024, 64}, false));
  EXPECT_EQ(rows_kept(rematerialise(still, "loss", all_supported)), rows_kept(still));
  const Graph joined = with_rows(gated_branches({4, 1024, 64}));
  const auto none = [](const Signature&) { return false; };
  EXPECT_EQ(rows_kept(rematerialise(joined, "loss", none)), rows_kept(joined));
  EXPECT_EQ(rows_kept(rematerialise(joined, "lost", all_supported)), rows_kept(joined));
}

}  // namespace
}  // namespace ebb::test::passes_test
