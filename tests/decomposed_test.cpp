// Decomposed adapters: lengths of changed rows, and what files have.
#include "adapters/decomposed.h"

#include <gtest/gtest.h>

#include <set>

#include "nn/ops.h"
#include "passes/precision/mixed_precision.h"
#include "runtime/plan.h"
#include "support/hashed_weights.h"

namespace ebb::adapters::decomposed_test {
namespace {

using testing::hashed;

// f32 [out] of the graph's output "lengths", with sources hashed by their names.
Tensor lengths_of(const Graph& g, const Tensor& before) {
  Plan plan(g, open_context("cpu", {.threads = 1}));
  for (const Source& s : g.sources())
    plan.bind(s.name, s.name == "before" ? before : hashed(s.name, g.type(s.value).shape, 0.5));
  return plan.run({}).at("lengths");
}

Value state(Graph& g, const char* name, const Shape& shape) {
  return g.source(Source::Kind::state, name, {DType::f32, shape});
}

}  // namespace

TEST(decomposed, lengths_of_changed_rows__are_those_of_the_sum) {
  constexpr int64_t out = 12, in = 40, taps = 3;
  for (const int64_t rank : {2, 30})  // thin products, and none
    for (const bool filter : {false, true}) {
      SCOPED_TRACE(::testing::Message() << rank << ' ' << filter);
      const Shape shape = filter ? Shape{out, taps, in} : Shape{out, in};
      const int64_t columns = shape.numel() / out;
      Graph g;
      const Value w = state(g, "w", shape);
      const Value a = state(g, "a", {out, rank}), b = state(g, "b", {rank, columns});
      const Value change = ops::reshape(ops::matmul(a, b), shape);
      const Shape rows = filter ? Shape{out, 1, 1} : Shape{out, 1};
      const Value before = ops::reshape(state(g, "before", {out}), rows);
      g.output("lengths", changed_lengths(w, change, before));
      const Tensor weight = hashed("w", shape, 0.5);
      const Tensor got = lengths_of(g, row_lengths(weight));
      const Tensor ta = hashed("a", {out, rank}, 0.5), tb = hashed("b", {rank, columns}, 0.5);
      for (int64_t o = 0; o < out; ++o) {
        double square = 0;
        for (int64_t i = 0; i < columns; ++i) {
          double v = weight.span<float>()[static_cast<size_t>(o * columns + i)];
          for (int64_t r = 0; r < rank; ++r)
            v += double{ta.span<float>()[static_cast<size_t>(o * rank + r)]} *
                 double{tb.span<float>()[static_cast<size_t>(r * columns + i)]};
          square += v * v;
        }
        const double want = std::sqrt(square);
        EXPECT_NEAR(got.span<float>()[static_cast<size_t>(o)], want, 1e-5 * want) << o;
      }
    }
}

// Rows of which a change leaves a hundredth, where products in bf16 may say less than nothing: what
// is scaled by them is about as long as its magnitude at most.
TEST(decomposed, rows_that_a_change_takes_away__are_not_scaled_to_infinity) {
  constexpr int64_t out = 64, in = 256, gone = 12;
  constexpr float left = 0.01F;
  const Tensor weight = hashed("w", {out, in}, 0.5);
  Tensor a(DType::f32, {out, gone}), b(DType::f32, {gone, in});
  for (int64_t r = 0; r < gone; ++r) {
    a.span<float>()[static_cast<size_t>(r * gone + r)] = left - 1;
    for (int64_t i = 0; i < in; ++i)
      b.span<float>()[static_cast<size_t>(r * in + i)] =
          weight.span<float>()[static_cast<size_t>(r * in + i)];
  }
  const Tensor before = row_lengths(weight);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    SCOPED_TRACE(name_of(dtype));
    Graph g;
    const Value rows = ops::reshape(state(g, "before", {out}), {out, 1});
    const Value change = ops::matmul(state(g, "a", {out, gone}), state(g, "b", {gone, in}));
    g.output("scale",
             magnitude_scale(rows, changed_lengths(state(g, "w", {out, in}), change, rows)));
    Plan plan(mixed_precision(g, dtype), open_context("cpu", {.threads = 1}));
    for (const auto& [name, t] : {std::pair{"w", weight}, {"a", a}, {"b", b}, {"before", before}})
      plan.bind(name, t);
    const Tensor scale = plan.run({}).at("scale");
    for (int64_t o = 0; o < out; ++o) {
      const float s = scale.span<float>()[static_cast<size_t>(o)];
      // of the magnitude |W|, V is left |W|
      EXPECT_LT(s * (o < gone ? left : 1), 1.05F) << o;
      EXPECT_GT(s, 0.95F) << o;
    }
  }
}

TEST(decomposed, lengths_of_a_low_rank_change__write_nothing_of_the_weights_size) {
  Graph g;
  const Value w = state(g, "w", {64, 48}), a = state(g, "a", {64, 4}), b = state(g, "b", {4, 48});
  const Value before = ops::reshape(state(g, "before", {64}), {64, 1});

  const Value change = ops::matmul(a, b);
  changed_lengths(w, change, before);
  for (const Node& n : g.nodes())
    for (const int32_t v : n.out)
      EXPECT_TRUE(v == change.id || g.type(v).shape.numel() < 64 * 48) << n.op->name;
}

TEST(decomposed, a_row_of_zeros__stays) {
  Graph g;
  const Value none = state(g, "none", {1, 1});
  g.output("scale", magnitude_scale(none, none));
  Plan plan(g, open_context("cpu", {.threads = 1}));
  plan.bind("none", Tensor(DType::f32, {1, 1}));
  EXPECT_EQ(plan.run({}).at("scale").span<float>()[0], 0);
}

TEST(decomposed, magnitudes__have_the_shapes_of_kohya_and_peft) {
  EXPECT_EQ(magnitude_shape({8, 4}, FileNames::kohya), Shape({8, 1}));
  EXPECT_EQ(magnitude_shape({8, 4, 3, 3}, FileNames::kohya), Shape({8, 1, 1, 1}));
  EXPECT_EQ(magnitude_shape({8, 4}, FileNames::peft), Shape({8}));
  EXPECT_EQ(magnitude_shape({8, 4, 3, 3}, FileNames::peft), Shape({1, 8, 1, 1}));
}

}  // namespace ebb::adapters::decomposed_test
