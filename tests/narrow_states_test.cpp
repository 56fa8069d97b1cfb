// States that are read in 16 bits alone are kept in them, and the step computes the same bits.
#include "passes/precision/narrow_states.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "nn/ops.h"
#include "passes/precision/mixed_precision.h"
#include "passes/simplify.h"

namespace ebb::narrow_states_test {
namespace {

Value state(Graph& g, const std::string& name, const Shape& shape) {
  return g.source(Source::Kind::state, name, {DType::f32, shape});
}
Value input(Graph& g) { return g.input("x", {DType::f32, {4, 6}}); }

Graph narrowed(const Graph& g) {
  return narrow_states(mixed_precision(g, DType::bf16), DType::bf16);
}

DType kept_in(const Graph& g, const std::string& name) {
  return g.type(g.find_source(name)->value).dtype;
}

}  // namespace

TEST(narrow_states, weights_of_matmuls__are_kept_in_16_bits) {
  Graph g;
  const Value both = ops::concat({state(g, "q", {5, 6}), state(g, "k", {3, 6})}, 0);
  const Value filter = ops::reshape(state(g, "filter", {2, 8, 1, 1}), {2, 8});
  g.output("y", ops::linear(ops::linear(input(g), both), filter));
  const Graph low = narrowed(g);
  for (const char* name : {"q", "k", "filter"}) EXPECT_EQ(kept_in(low, name), DType::bf16) << name;
  const auto casts =
      std::ranges::count_if(low.nodes(), [&](const Node& n) { return is_cast(low, n); });
  EXPECT_EQ(casts, 2);  // of x and y
}

TEST(narrow_states, what_is_read_in_f32__stays) {
  Graph g;
  const Value also_added = state(g, "also_added", {6, 6});
  const Value updated = state(g, "updated", {6, 6});
  const Value with_a_param = state(g, "with_a_param", {5, 6});
  const Value param = g.source(Source::Kind::param, "param", {DType::f32, {1, 6}});
  Value h = ops::linear(input(g), also_added) + ops::slice(also_added, 0, 0, 4);
  h = ops::linear(h, updated);
  g.output("y", ops::linear(h, ops::concat({with_a_param, param}, 0)));
  g.output("z", ops::reshape(state(g, "given_out", {6, 6}), {36}));
  g.update("updated", 2.0 * updated);
  const Graph low = narrowed(g);
  for (const Source& s : low.sources()) EXPECT_EQ(low.type(s.value).dtype, DType::f32) << s.name;
}

TEST(narrow_states, in_f32__nothing_changes) {
  Graph g;
  g.output("y", ops::linear(input(g), state(g, "w", {6, 6})));
  EXPECT_EQ(kept_in(narrow_states(g, DType::f32), "w"), DType::f32);
}

}  // namespace ebb::narrow_states_test
