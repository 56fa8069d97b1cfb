// Fusions of sampling, where weights are prepared: what they make, what they leave, and that the
// results stay.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "nn/ops.h"
#include "ops/prim/concat/op.h"
#include "ops/prim/conv2d/op.h"
#include "ops/prim/matmul/op.h"
#include "ops/prim/resample/op.h"
#include "ops/prim/slice/op.h"
#include "passes/contractions/fold_producers.h"
#include "passes/contractions/fuse_epilogues.h"
#include "passes/schedule/prepare.h"
#include "support/graphs.h"
#include "support/same_results.h"

namespace ebb::test::sampling_fusions_test {
namespace {

bool is_param(const Source& s) { return s.kind == Source::Kind::param; }

Value param(Graph& g, std::string_view name, Shape shape) {
  return g.source(Source::Kind::param, name, {DType::f32, std::move(shape)});
}

int64_t count_named(const Graph& g, std::string_view op) {
  return std::ranges::count_if(g.nodes(), [&](const Node& n) { return n.op->name == op; });
}

void expect_same(const Graph& before, const Graph& after) {
  verify(after, "test");
  expect_equal(before, in_primitives(after));
}

// ---- convolutions of upsampled images ------------------------------------------------------

Value upsampled_conv(Graph& g, const ops::Resample& how, Shape weight, const ops::Conv2d& conv) {
  const Value x = g.input("x", {DType::f32, {2, 5, 3, weight[3]}});
  const Value w = param(g, "w", weight), bias = param(g, "bias", {weight[0]});
  return ops::conv2d(ops::resample(x, how), w, bias, conv);
}

TEST(fold_producers, any_padding_and_factor__same_results_of_smaller_images) {
  struct Case {
    int64_t up;
    Shape weight;
    std::vector<int64_t> pad;
  };
  const Case cases[] = {{2, {7, 3, 3, 4}, {1, 1, 1, 1}},
                        {2, {3, 3, 3, 2}, {0, 1, 2, 0}},
                        {2, {3, 5, 3, 2}, {2, 1, 2, 1}},
                        {3, {5, 3, 4, 2}, {1, 0, 1, 2}}};
  for (const Case& c : cases) {
    Graph g;
    g.output("y", upsampled_conv(g, {ops::ResampleKind::nearest, c.up}, c.weight, {1, c.pad}));
    const Graph low = in_primitives(g), out = fold_producers(low, is_param, all_same_cost_class);
    EXPECT_EQ(count_named(out, "resample"), 0);
    EXPECT_EQ(count_named(out, "conv2d"), 0);
    EXPECT_EQ(count_named(out, "conv2d_dx"), 1);
    expect_same(low, out);
    // the sums are not part of a step
    const PreparedGraph p = prepare(out, is_param);
    EXPECT_EQ(count_named(p.step, "matmul"), 0);
    EXPECT_EQ(count_named(p.prepare, "matmul"), 1);
  }
}

TEST(fold_producers, another_reader__keeps_the_larger_images) {
  Graph g;
  const Value x = g.input("x", {DType::f32, {2, 5, 3, 4}});
  const Value up = ops::upsample_nearest2(x);
  g.output("y", ops::conv2d(up, param(g, "w", {7, 3, 3, 4}), {}, {1, {1, 1, 1, 1}}));
  g.output("z", up * up);
  const Graph low = in_primitives(g), out = fold_producers(low, is_param, all_same_cost_class);
  EXPECT_EQ(count_named(out, "resample"), 1);
  EXPECT_EQ(count_named(out, "conv2d"), 0);
  EXPECT_EQ(count_named(out, "conv2d_dx"), 1);
  expect_same(low, out);
}

// Sums of weights are rounded once more. The error that this adds is that of rounding the result,
// which a convolution of the larger images has alone: together no more than twice as much.
TEST(fold_producers, narrow_types__at_most_double_the_error) {
  Graph g;
  g.output("y",
           upsampled_conv(g, {ops::ResampleKind::nearest, 2}, {16, 3, 3, 32}, {1, {1, 1, 1, 1}}));
  const Graph low = in_primitives(g),
              out = in_primitives(fold_producers(low, is_param, all_same_cost_class));
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const auto round = [dtype](RefArray& a) {
      for (double& v : a.v) v = rounded(v, dtype);
    };
    RefInputs in;
    uint64_t state = 1;  // of a linear congruential generator
    for (const Source& s : low.sources()) {
      std::vector<double> v;
      for (int64_t i = 0; i < low.type(s.value).shape.numel(); ++i) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        v.push_back(static_cast<double>(state >> 40) / (1 << 23) - 1);
      }
      in[s.name] = ref_array(low.type(s.value).shape, v);
      round(in[s.name]);
    }
    const auto exact = evaluate_reference(low, in);
    const auto error = [&](const Graph& graph) {
      const auto got = evaluate_reference(graph, in, round);
      const RefArray &a = output_of(low, exact, "y"), &b = output_of(graph, got, "y");
      double sum = 0;
      for (size_t i = 0; i < a.v.size(); ++i) sum += (a.v[i] - b.v[i]) * (a.v[i] - b.v[i]);
      return std::sqrt(sum / static_cast<double>(a.v.size()));
    };
    const double plain = error(low), summed = error(out);
    EXPECT_GT(summed, plain);
    EXPECT_LT(summed, 2 * plain) << dtype;
  }
}

TEST(fold_producers, other_convolutions__stay) {
  const auto stays = [](const ops::Resample& how, Shape weight, const ops::Conv2d& conv) {
    Graph g;
    g.output("y", upsampled_conv(g, how, std::move(weight), conv));
    EXPECT_EQ(
        count_named(fold_producers(in_primitives(g), is_param, all_same_cost_class), "conv2d_dx"),
        0);
  };
  const std::vector<int64_t> same{1, 1, 1, 1}, none{0, 0, 0, 0};
  using enum ops::ResampleKind;
  stays({nearest, 2}, {3, 3, 3, 2}, {2, same});                       // a stride
  stays({.kind = nearest, .size = {9, 5}}, {3, 3, 3, 2}, {1, same});  // uneven repeats
  stays({.kind = bilinear, .size = {10, 6}}, {3, 3, 3, 2}, {1, same});
  stays({nearest, 2}, {3, 1, 1, 2}, {1, none});  // no product fewer
  Graph g;
  const Value x = g.input("x", {DType::f32, {2, 5, 3, 4}});
  const Value w = g.input("w", {DType::f32, {7, 3, 3, 4}});  // would be summed in every step
  g.output("y", ops::conv2d(ops::upsample_nearest2(x), w, {}, {1, same}));
  EXPECT_EQ(
      count_named(fold_producers(in_primitives(g), is_param, all_same_cost_class), "conv2d_dx"), 0);
}

// The products of a shortcut have no place in a transposed convolution.
TEST(fold_producers, convolution_with_further_products__stays) {
  Graph g;
  const Value x = ops::upsample_nearest2(g.input("x", {DType::f32, {2, 5, 3, 4}}));
  const Value y = g.input("y", {DType::f32, {2, 10, 6, 3}});
  const Value w = param(g, "w", {7, 3, 3, 4}), v = param(g, "v", {7, 3});
  g.output("z", g.add1(ops::def::conv2d(),
                       ops::Conv2d{.pad = {1, 1, 1, 1}, .dtype = {}, .products = 2}, {x, w, y, v}));
  EXPECT_EQ(count_named(fold_producers(g, is_param, all_same_cost_class), "conv2d_dx"), 0);
}

Graph with_epilogues(const Graph& g) {
  return fuse_epilogues(g, {.supports = serves_forms, .is_weight = is_param});
}
int64_t shortcuts(const Graph& g) {
  return std::ranges::count_if(g.nodes(), [](const Node& n) {
    return n.op == &ops::def::conv2d() && n.attrs.as<ops::Conv2d>().products > 1;
  });
}
int64_t scaled_rows(const Graph& g) {
  return count_forms(g, ops::def::matmul(), ops::EpilogueForm::Kind::scaled);
}

// ---- shortcuts -----------------------------------------------------------------------------

TEST(fuse_epilogues_of_weights, convolution_and_matmul_added_up__are_one_node) {
  for (const bool bias : {true, false}) {
    Graph g;
    const Value x = g.input("x", {DType::f32, {2, 5, 3, 4}});
    const Value y = g.input("y", {DType::f32, {2, 5, 3, 6}});
    const auto b = [&](std::string_view name) { return bias ? param(g, name, {7}) : Value{}; };
    const Value conv = ops::conv2d(x, param(g, "w", {7, 3, 3, 4}), b("b"), {1, {1, 1, 1, 1}});
    g.output("z", ops::linear(y, param(g, "v", {7, 6}), b("c")) + conv);
    const Graph low = in_primitives(g), out = with_epilogues(low);
    EXPECT_EQ(shortcuts(out), 1);
    EXPECT_EQ(out.nodes().size(), bias ? 2u : 1u);  // the sum of the biases
    expect_same(low, out);
  }
}

TEST(fuse_epilogues_of_weights, matmul_of_concatenated_tensors__reads_them_as_they_are) {
  Graph g;
  const Value x = g.input("x", {DType::f32, {2, 5, 3, 4}});
  const Value y = ops::concat({g.input("a", {DType::f32, {2, 5, 3, 6}}), x}, 3);
  const Value conv = ops::conv2d(x, param(g, "w", {7, 3, 3, 4}), {}, {1, {1, 1, 1, 1}});
  g.output("z", conv + ops::linear(y, param(g, "v", {7, 10}), param(g, "b", {7})));
  const Graph low = in_primitives(g), out = with_epilogues(low);
  EXPECT_EQ(shortcuts(out), 1);
  EXPECT_EQ(count_named(out, "concat"), 0);
  expect_same(low, out);
}

TEST(fuse_epilogues_of_weights, results_that_others_read__stay) {
  Graph g;
  const Value x = g.input("x", {DType::f32, {2, 5, 3, 4}});
  const Value conv = ops::conv2d(x, param(g, "w", {7, 3, 3, 4}), {}, {1, {1, 1, 1, 1}});
  g.output("z", conv + ops::linear(x, param(g, "v", {7, 4})));
  g.output("conv", conv);
  EXPECT_EQ(shortcuts(with_epilogues(in_primitives(g))), 0);
}

// ---- scaled residuals ----------------------------------------------------------------------

TEST(fuse_epilogues_of_weights, row_of_factors_for_each_image__is_in_the_epilogue) {
  for (const bool sliced : {true, false}) {
    Graph g;
    const Value x = g.input("x", {DType::f32, {3, 5, 8}});
    const Value rows = g.input("rows", {DType::f32, {3, sliced ? 20 : 8}});
    const Value row = ops::reshape(sliced ? ops::slice(rows, 1, 9, 17) : rows, {3, 1, 8});
    const Value y = ops::linear(x, param(g, "w", {8, 8}), param(g, "b", {8}));
    g.output("z", x + row * y);
    const Graph low = in_primitives(g), out = with_epilogues(low);
    EXPECT_EQ(scaled_rows(out), 1);
    EXPECT_EQ(count_named(out, "slice") + count_named(out, "pointwise"), 0);
    expect_same(low, out);
  }
}

TEST(fuse_epilogues_of_weights, products_that_others_read_and_other_factors__stay) {
  Graph g;
  const Value x = g.input("x", {DType::f32, {3, 5, 8}});
  const Value row = g.input("row", {DType::f32, {3, 1, 8}});
  const Value y = ops::linear(x, param(g, "w", {8, 8}));
  g.output("read", y);
  g.output("z", x + row * y);
  g.output("channels", x + ops::linear(x, param(g, "v", {8, 8})) * param(g, "scale", {8}));
  EXPECT_EQ(scaled_rows(with_epilogues(in_primitives(g))), 0);
}

}  // namespace
}  // namespace ebb::test::sampling_fusions_test
