// Strided views of attention: what the pass reads and writes in place, and that the meaning stays.
#include "passes/views/strided_views.h"

#include <gtest/gtest.h>

#include "functions/strided.h"
#include "ops/prim/attention/op.h"
#include "ops/prim/attention_grad/op.h"
#include "ops/prim/concat/op.h"
#include "ops/prim/matmul/op.h"
#include "ops/prim/permute/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reduce/op.h"
#include "ops/prim/reshape/op.h"
#include "ops/prim/slice/op.h"
#include "ops/prim/strided.h"
#include "ops/split/op.h"
#include "ops/table.h"
#include "passes/gradients.h"
#include "passes/lower.h"
#include "passes/simplify.h"
#include "passes/views/elide_copies.h"
#include "support/files.h"
#include "support/graphs.h"
#include "support/same_results.h"

namespace ebb::test::strided_views_test {
namespace {

// The graph as it comes to the pass: a device has kernels for split.
Graph lowered(const Graph& g) {
  return common_subexpressions(dead_code(lower(g, [](const Signature& s) {
    return s.op->reference != nullptr || s.op == &ops::def::split();
  })));
}
Graph viewed(const Graph& g, const Supports& supports = all_supported) {
  Graph out = elide_copies(g, supports);
  verify(out, "views");
  return out;
}
int64_t copies(const Graph& g) {
  return count(g, ops::def::permute()) + count(g, ops::def::slice()) + count(g, ops::def::split()) +
         count(g, ops::def::concat());
}
ops::HeadViews views_of(const Graph& g) {  // of its attention
  for (const Node& n : g.nodes())
    if (n.op == &ops::def::attention()) return n.attrs.as<ops::Attention>().views;
  return {};
}

Value heads_last(Value x) { return ops::permute(x, {0, 2, 1, 3}); }

// Expects that no copy is left, and the same results.
void expect_no_copies(const Graph& g) {
  const Graph before = lowered(g), out = viewed(before);
  EXPECT_GT(copies(before), 0);
  EXPECT_EQ(copies(out), 0);
  expect_equal(before, out);
}
// The same of the gradients with respect to all inputs of floats.
Graph with_gradients(Graph g, const std::vector<std::string>& wrt) {
  const Value y = g.take_output("y");
  const Value weight = g.input("weight", y.type());
  std::vector<int64_t> all(static_cast<size_t>(y.shape().rank()));
  for (size_t d = 0; d < all.size(); ++d) all[d] = static_cast<int64_t>(d);
  const Value product = ops::map({y, weight}, [](auto x) { return x[0] * x[1]; });
  g.output("loss", ops::reshape(ops::sum(product, all), {}));
  return gradients(g, "loss", wrt);
}

// ---- views -------------------------------------------------------------------------------------

TEST(strided_view, other_shapes__are_strides_where_dims_take_equal_steps) {
  const StridedView rows = sliced(dense_view({2, 5, 24}), 2, 8, 16);
  EXPECT_EQ(reshaped(rows, {10, 2, 4}), (StridedView{8, {10, 2, 4}, {24, 4, 1}}));
  EXPECT_EQ(reshaped(rows, {1, 2, 5, 1, 8}),
            (StridedView{8, {1, 2, 5, 1, 8}, {240, 120, 24, 8, 1}}));
  EXPECT_FALSE(reshaped(rows, {80}));
  EXPECT_FALSE(reshaped(rows, {2, 8, 5}));
  const StridedView moved = permuted(dense_view({2, 3, 4}), {0, 2, 1});
  EXPECT_EQ(moved, (StridedView{0, {2, 4, 3}, {12, 1, 4}}));
  EXPECT_FALSE(reshaped(moved, {2, 12}));
  EXPECT_EQ(reshaped(moved, {2, 2, 2, 3}), (StridedView{0, {2, 2, 2, 3}, {12, 2, 1, 4}}));
  EXPECT_EQ(extent(rows), 9 * 24 + 16);
  EXPECT_EQ(extent(StridedView{3, {0, 2}, {2, 1}}), 0);
}

TEST(strided_view, values__are_slices_and_permutations_and_back) {
  const StridedView view{6, {2, 3, 2}, {30, 1, 10}};
  Graph g;
  const Value x = g.input("x", f32({2, 3, 10}));
  const Value y = ops::strided(x, view);
  ASSERT_EQ(y.shape(), view.shape);
  g.output("y", y);
  g.output("back", ops::unstrided(y, view, {2, 3, 10}));
  std::vector<double> memory(60);
  for (size_t i = 0; i < memory.size(); ++i) memory[i] = static_cast<double>(i + 1);
  const auto values = evaluate_reference(g, {{"x", {{2, 3, 10}, memory}}});
  const auto got = output_of(g, values, "y").v, back = output_of(g, values, "back").v;
  std::vector<double> want(60);
  size_t at = 0;
  for (int64_t i = 0; i < 2; ++i)
    for (int64_t j = 0; j < 3; ++j)
      for (int64_t k = 0; k < 2; ++k) {
        const auto from = static_cast<size_t>(6 + 30 * i + j + 10 * k);
        EXPECT_EQ(got[at++], memory[from]);
        want[from] = memory[from];
      }
  EXPECT_EQ(back, want);
}

TEST(strided_view, ranges_that_wrap__are_errors) {
  Graph g;
  const Value x = g.input("x", f32({4, 8}));
  EXPECT_NE(testing::error_of([&] {
              ops::strided(x, {6, {3, 4}, {8, 1}});
            }).find("no range of each dim"),
            std::string::npos);
}

TEST(attention_views, views_outside_of_their_tensor__are_errors) {
  const auto of = [](StridedView view) {
    return testing::error_of([&] {
      Graph g;
      const Value x = g.input("x", f32({2, 3, 2, 8}));
      ops::Attention attrs;
      attrs.views.set(1, std::move(view));
      g.add(ops::def::attention(), attrs, std::vector{x, x, x});
    });
  };
  EXPECT_EQ(of({0, {2, 3, 2, 8}, {48, 16, 8, 1}}), "");
  for (const StridedView& view :
       {StridedView{1, {2, 3, 2, 8}, {48, 16, 8, 1}}, StridedView{0, {2, 3, 2, 8}, {48, 16, 8, 2}},
        StridedView{0, {2, 3, 2, 8}, {-48, 16, 8, 1}}, StridedView{0, {2, 3, 16}, {48, 16, 1}}})
    EXPECT_NE(of(view).find("of operand 1 must lie in it"), std::string::npos) << of(view);
}

// ---- operands ----------------------------------------------------------------------------------

Graph heads_before_tokens(bool output_too) {
  Graph g;
  const auto input = [&](const char* name, int64_t heads, int64_t rows) {
    return heads_last(g.input(name, f32({2, heads, rows, 8})));
  };
  const Value o = ops::attention(input("q", 4, 5), input("k", 2, 7), input("v", 2, 7));
  g.output("y", output_too ? heads_last(o) : o);
  return g;
}

TEST(attention_views, heads_before_tokens__are_read_and_written_in_place) {
  expect_no_copies(heads_before_tokens(false));
  expect_no_copies(heads_before_tokens(true));
}

// [N,T,(A + 2 H) K], as one GEMM makes it.
Graph chunks(int64_t heads, int64_t key_heads, const ops::AttentionOptions& options) {
  Graph g;
  const int64_t width = 8, all = heads + 2 * key_heads;
  const Value x = g.input("x", f32({2, 5, 16})), w = g.input("w", f32({16, all * width}));
  const Value qkv = ops::matmul(ops::reshape(x, {10, 16}), w);
  const auto chunk = [&](int64_t begin, int64_t count) {
    return ops::reshape(ops::slice(qkv, 1, begin * width, (begin + count) * width),
                        {2, 5, count, width});
  };
  g.output("y", ops::attention(chunk(0, heads), chunk(heads, key_heads),
                               chunk(heads + key_heads, key_heads), options));
  return g;
}

TEST(attention_views, chunks_of_one_product__are_read_in_place) {
  expect_no_copies(chunks(3, 3, {}));
  expect_no_copies(chunks(4, 2, {.causal = true}));
}

TEST(attention_views, splits__are_read_in_place) {
  Graph g;
  const Value x = g.input("x", f32({2, 5, 48}));
  std::vector<Value> qkv = ops::split(x, 2, 3);
  for (Value& v : qkv) v = ops::reshape(v, {2, 5, 2, 8});
  g.output("y", ops::attention(qkv[0], qkv[1], qkv[2]));
  expect_no_copies(g);
}

// Image tokens that attend to the text's, of two samples.
TEST(attention_views, ranges_of_joined_tokens__are_read_in_place) {
  Graph g;
  const Value x = g.input("x", f32({2, 12, 3, 8})), q = g.input("q", f32({2, 12, 3, 8}));
  g.output("y",
           ops::attention(ops::slice(q, 1, 4, 12), ops::slice(x, 1, 0, 4), ops::slice(x, 1, 0, 4)));
  expect_no_copies(g);
}

TEST(attention_views, masks_and_biases__stay_as_they_are) {
  Graph g;
  const auto input = [&](const char* name) { return heads_last(g.input(name, f32({2, 3, 5, 8}))); };
  const Value bias = ops::permute(g.input("bias", f32({1, 5, 3, 5})), {0, 2, 1, 3});
  g.output("y", ops::attention(input("q"), input("k"), input("v"), {.bias = bias}));
  const Graph before = lowered(g), out = viewed(before);
  EXPECT_EQ(copies(before), 4);
  EXPECT_EQ(copies(out), 1);
  expect_equal(before, out);
}

TEST(attention_views, what_others_read__is_made_once_for_all) {
  Graph g;
  const Value q = heads_last(g.input("q", f32({2, 3, 5, 8})));
  const Value k = heads_last(g.input("k", f32({2, 3, 5, 8})));
  g.output("y", ops::attention(q, k, k));
  g.output("q", q);
  const Graph before = lowered(g), out = viewed(before);
  EXPECT_EQ(copies(out), 1);
  expect_equal(before, out);
}

TEST(attention_views, what_the_kernel_does_not_read__is_copied) {
  const Graph before = lowered(heads_before_tokens(true));
  EXPECT_EQ(copies(viewed(before, none_supported)), 4);
  const auto without_results = [](const Signature& s) {
    return s.op != &ops::def::attention() || s.as<ops::Attention>().result_views.empty();
  };
  EXPECT_EQ(copies(viewed(before, without_results)), 1);
  const auto only_q = [](const Signature& s) {
    if (s.op != &ops::def::attention()) return true;
    const auto& a = s.as<ops::Attention>();
    return a.result_views.empty() && a.views.of(1) == nullptr && a.views.of(2) == nullptr;
  };
  const Graph out = viewed(before, only_q);
  EXPECT_EQ(copies(out), 3);
  expect_equal(before, out);
}

// A chain of attentions with heads before tokens: each reads what the one before has written so.
TEST(attention_views, results_in_other_orders__are_read_through_them) {
  Graph g;
  const Value x = g.input("x", f32({2, 3, 5, 8}));
  const Value q = heads_last(x);
  const Value first = heads_last(ops::attention(q, q, q));
  const Value scaled = ops::map({first}, [](auto v) { return v[0] * 2.0; });
  const Value again = heads_last(scaled);
  g.output("y", heads_last(ops::attention(again, again, heads_last(first))));
  expect_no_copies(g);
}

// ---- gradients ---------------------------------------------------------------------------------

TEST(attention_views, gradients_of_heads_before_tokens__are_written_in_place) {
  expect_no_copies(with_gradients(heads_before_tokens(true), {"q", "k", "v"}));
}

TEST(attention_views, gradients_of_chunks__are_written_as_one_tensor) {
  for (const int64_t key_heads : {4, 2}) {
    const Graph before =
        lowered(with_gradients(chunks(4, key_heads, {.causal = true}), {"x", "w"}));
    const Graph out = viewed(before);
    EXPECT_EQ(copies(out), 0) << key_heads;
    expect_equal(before, out);
  }
}

// ---- functions for other programs --------------------------------------------------------------

// Tensors of PyTorch: heads before tokens, and chunks of one projection.
TEST(attention_views, strides_of_callers__are_read_in_place) {
  const std::vector<int64_t> sizes{2, 5, 3, 8};
  for (const std::vector<int64_t>& strides :
       {std::vector<int64_t>{120, 8, 40, 1}, std::vector<int64_t>{360, 72, 8, 1}}) {
    const auto view = functions::StorageView::of(sizes, strides);
    ASSERT_TRUE(view);
    Graph g;
    const auto input = [&](const char* name) { return view->input(g, name, DType::f32); };
    g.output("y", ops::attention(input("q"), input("k"), input("v")));
    expect_no_copies(g);
    const ops::HeadViews views = views_of(viewed(lowered(g)));
    ASSERT_NE(views.of(0), nullptr);
    EXPECT_EQ(views.of(0)->strides, strides);
  }
}

}  // namespace
}  // namespace ebb::test::strided_views_test
