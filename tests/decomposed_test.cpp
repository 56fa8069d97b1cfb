// Decomposed adapters: lengths of changed rows, and what files have.
#include "adapters/decomposed.h"

#include <gtest/gtest.h>

#include <set>

#include "nn/ops.h"
#include "runtime/plan.h"
#include "support/hashed_weights.h"

namespace ebb::adapters {
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

}  // namespace ebb::adapters
