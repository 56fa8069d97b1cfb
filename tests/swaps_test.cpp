// Swapped runs as views: rotations become one loop, with the norm before them.
#include "passes/views/hoist_views.h"

#include <algorithm>
#include <gtest/gtest.h>

#include "ir/text.h"
#include "ops/layer_norm/op.h"
#include "ops/loop/op.h"
#include "ops/prim/concat/op.h"
#include "ops/prim/matmul/op.h"
#include "ops/prim/reshape/op.h"
#include "ops/prim/slice/op.h"
#include "ops/prim/swaps.h"
#include "ops/rms_norm/op.h"
#include "ops/rope/op.h"
#include "ops/silu/op.h"
#include "passes/fusion/fuse_loops.h"
#include "passes/fusion/inline_producers.h"
#include "passes/gradients.h"
#include "passes/simplify.h"
#include "passes/views/elide_copies.h"
#include "support/graphs.h"
#include "support/same_results.h"

namespace ebb::test::swaps_test {
namespace {

constexpr int64_t width = 64;

// The passes of a device whose loops take swapped operands, in the order of the pipeline.
Graph planned(const Graph& g, bool supports = true) {
  const auto loops = [=](const Signature&) { return supports; };
  Graph low = common_subexpressions(dead_code(in_primitives(g)));
  low = dead_code(inline_producers(drop_unused_inputs(hoist_views(low)), {}));
  Graph out = elide_copies(fuse_loops(low, {all_supported}), loops);
  verify(out, "swaps");
  return out;
}

// Nodes whose results are as large as q.
int64_t large(const Graph& g, int64_t numel = 2 * 8 * 3 * width) {
  return std::ranges::count_if(g.nodes(), [&](const Node& n) {
    return n.op->name != "reshape" && g.type(n.out[0]).shape.numel() >= numel;
  });
}

struct Queries {
  Graph g;
  Value q = g.input("q", f32({2, 8, 3, width}));
  Value cos = g.input("cos", f32({8, width / 2})), sin = g.input("sin", f32({8, width / 2}));
  Value gamma = g.input("gamma", f32({width}));
};

TEST(swaps, rotation__is_one_loop) {
  for (const bool half_split : {false, true})
    for (const bool inverse : {false, true}) {
      Queries t;
      t.g.output("y", ops::rope(t.q, t.cos, t.sin, {.half_split = half_split, .inverse = inverse}));
      const Graph out = planned(t.g);
      EXPECT_EQ(large(out), 1) << half_split;
      EXPECT_EQ(count_loops(out, ops::LoopKind::map), 1) << half_split;
      expect_equal(in_primitives(t.g), in_primitives(out));
    }
}

// And nothing else: the gradients of the tables are dead code.
TEST(swaps, gradient_of_a_rotation__is_the_rotation_back) {
  Queries t;
  sum_as_loss(t.g, ops::rope(t.q, t.cos, t.sin));
  const Graph backward = dead_code(gradients(t.g, "loss", std::vector<std::string>{"q"}));
  int64_t back = 0;
  for (const Node& n : backward.nodes())
    back += n.op == &ops::def::rope() && n.attrs.as<ops::Rope>().inverse;
  EXPECT_EQ(back, 1);
  EXPECT_EQ(count(backward, ops::def::rope()), 2);
  EXPECT_EQ(count(backward, ops::def::slice()), 0);
}

TEST(swaps, norm_of_heads_and_rotation__are_one_loop_along_rows) {
  for (const bool half_split : {false, true})
    for (const bool centred : {false, true}) {
      Queries t;
      const Value x =
          centred ? ops::layer_norm(t.q, t.gamma, {}, {}) : ops::rms_norm(t.q, t.gamma, {});
      t.g.output("y", ops::rope(x, t.cos, t.sin, {.half_split = half_split}));
      const Graph out = planned(t.g);
      EXPECT_EQ(large(out), 1) << half_split << centred;
      EXPECT_EQ(count_loops(out, ops::LoopKind::rows), 1) << half_split << centred;
      expect_equal(in_primitives(t.g), in_primitives(out));
    }
}

// dq and the sums for gamma, in one loop that reads dy and its partners: whatever number of heads
// makes the rows of a block.
TEST(swaps, gradient_of_both__is_one_loop) {
  for (const int64_t heads : {4, 24, 38, 40})
    for (const bool half_split : {false, true}) {
      Graph g;
      const Value q = g.input("q", f32({2, 512, heads, width}));
      g.input("dy", q.type());
      const Value cos = g.input("cos", f32({512, width / 2})), sin = g.input("sin", cos.type());
      const Value gamma = g.input("gamma", f32({width}));
      g.output("y", ops::rope(ops::rms_norm(q, gamma, {}), cos, sin, {.half_split = half_split}));
      const WeightedOutput outputs[] = {{"y", "dy"}};
      const Graph out = planned(gradients(g, outputs, std::vector<std::string>{"q", "gamma"}));
      EXPECT_EQ(large(out, q.shape().numel()), 1) << heads << half_split << '\n' << to_text(out);
      EXPECT_EQ(count_loops(out, ops::LoopKind::rows), 1) << heads << half_split;
    }
}

// A norm over all heads, as of LTX-Video and Wan: x [B,S,C], y [B,S,heads,D].
struct AllHeads {
  int64_t tokens = 4096;
  Graph g = {};
  Shape heads = {2, tokens, 3, width};
  Value q = g.input("q", f32({2, tokens, 3 * width})), dy = g.input("dy", f32(heads));
  Value cos = g.input("cos", f32({tokens, width / 2})), sin = g.input("sin", cos.type());
  Value gamma = g.input("gamma", f32({3 * width}));

  Value rotated(bool half_split) {
    return ops::rope(ops::reshape(ops::rms_norm(q, gamma, {}), heads), cos, sin,
                     {.half_split = half_split});
  }
};

TEST(swaps, norm_over_all_heads_and_rotation__are_one_loop_along_rows) {
  for (const bool half_split : {false, true}) {
    AllHeads t;
    t.g.output("y", t.rotated(half_split));
    const Graph out = planned(t.g);
    EXPECT_EQ(large(out, t.heads.numel()), 1) << half_split << '\n' << to_text(out);
    EXPECT_EQ(count_loops(out, ops::LoopKind::rows), 1) << half_split;
  }
}

// dq and the sums for gamma, in one loop that rotates dy back.
TEST(swaps, gradient_of_norm_over_all_heads_and_rotation__is_one_loop) {
  for (const int64_t tokens : {4096, 4060})
    for (const bool half_split : {false, true}) {
      AllHeads t{tokens};
      sum_as_loss(t.g, scaled(t.rotated(half_split), t.dy));
      const Graph out =
          planned(dead_code(gradients(t.g, "loss", std::vector<std::string>{"q", "gamma"})));
      EXPECT_EQ(count_loops(out, ops::LoopKind::rows), 1) << half_split << '\n' << to_text(out);
      EXPECT_EQ(count_loops(out, ops::LoopKind::map), 0) << half_split;
      EXPECT_LE(large(out, t.heads.numel()), 2) << half_split;  // with the ones of the loss
    }
}

TEST(swaps, norm_over_all_heads_and_rotation__give_the_same_numbers) {
  for (const bool half_split : {false, true}) {
    Graph g;
    const Value q = g.input("q", f32({2, 32, 3 * width})),
                gamma = g.input("gamma", f32({3 * width}));
    const Value cos = g.input("cos", f32({32, width / 2})), sin = g.input("sin", cos.type());
    const Value y = ops::rope(ops::reshape(ops::rms_norm(q, gamma, {}), {2, 32, 3, width}), cos,
                              sin, {.half_split = half_split});
    sum_as_loss(g, scaled(y, g.input("dy", y.type())));
    const Graph both = dead_code(gradients(g, "loss", std::vector<std::string>{"q", "gamma"}));
    expect_equal(in_primitives(both), in_primitives(planned(both)));
  }
}

// The norm's result as a matmul reads it: only its shape differs.
TEST(swaps, norm_over_all_heads_without_rotation__keeps_its_shape) {
  Graph g;
  const Value q = g.input("q", f32({2, 8, 3 * width})), gamma = g.input("gamma", f32({3 * width}));
  const Value y = ops::reshape(ops::rms_norm(q, gamma, {}), {2, 8, 3, width});
  g.output("y", ops::matmul(y, y, {.trans_b = true}));
  const Graph out = planned(g);
  EXPECT_EQ(count_loops(out, ops::LoopKind::rows), 1);
  for (const Node& n : out.nodes())
    if (n.op == &ops::def::loop()) {
      EXPECT_EQ(n.attrs.as<ops::Loop>().row_dims.value(), 1);
    }
}

TEST(swaps, partial_rotation__is_one_loop) {
  for (const bool half_split : {false, true}) {
    Graph g;
    const Value q = g.input("q", f32({2, 8, 3, width}));
    const Value cos = g.input("cos", f32({8, width / 4})), sin = g.input("sin", cos.type());
    g.output("y", ops::rope(q, cos, sin, {.half_split = half_split}));
    const Graph out = planned(g);
    EXPECT_EQ(large(out), 1) << half_split << '\n' << to_text(out);
    expect_equal(in_primitives(g), in_primitives(out));
  }
}

// Queries and keys of [B,S,3,heads,D] are read in place.
TEST(swaps, queries_and_keys_of_one_tensor__are_two_loops) {
  for (const bool all_heads : {false, true}) {
    Graph g;
    const Shape heads = {2, 8, 3, width};
    const Value qkv = g.input("qkv", f32({2, 8, 3, 3, width}));
    const Value cos = g.input("cos", f32({8, width / 2})), sin = g.input("sin", cos.type());
    for (int64_t i = 0; i < 2; ++i) {
      Value x = ops::slice(qkv, 2, i, i + 1);
      x = ops::reshape(x, all_heads ? Shape{2, 8, 3 * width} : heads);
      x = ops::reshape(ops::rms_norm(x, {}, {}), heads);
      g.output(str("y", i), ops::rope(x, cos, sin, {.half_split = true}));
    }
    const Graph out = planned(g);
    EXPECT_EQ(large(out), 2) << all_heads << '\n' << to_text(out);
    EXPECT_EQ(count(out, ops::def::slice()), 0) << all_heads;
    expect_equal(in_primitives(g), in_primitives(out));
  }
}

TEST(swaps, device_without_kernels__copies) {
  Queries t;
  t.g.output("y", ops::rope(t.q, t.cos, t.sin));
  const Graph out = planned(t.g, false);
  EXPECT_EQ(count_loops(out, ops::LoopKind::map), 0);
  expect_equal(in_primitives(t.g), in_primitives(out));
}

TEST(swaps, result_that_others_read__is_swapped_as_it_is) {
  Queries t;
  const Value x = ops::silu(t.q);
  t.g.output("x", x);
  t.g.output("y", ops::rope(x, t.cos, t.sin));
  const Graph out = planned(t.g);
  EXPECT_EQ(large(out), 2);
  expect_equal(in_primitives(t.g), in_primitives(out));
}

TEST(swaps, swap_that_a_matmul_reads__stays) {
  Queries t;
  const Value swapped = ops::swap_runs(t.q, 1);
  t.g.output("y", ops::map({t.q, swapped}, [](auto v) { return v[0] + v[1]; }));
  t.g.output("z", ops::matmul(swapped, swapped, {.trans_b = true}));
  const Graph out = planned(t.g);
  EXPECT_EQ(count(out, ops::def::concat()), 1);
  EXPECT_EQ(count_loops(out, ops::LoopKind::map), 0);
  expect_equal(in_primitives(t.g), in_primitives(out));
}

TEST(swaps, other_concatenations__stay) {
  Graph g;
  const Value x = g.input("x", f32({3, 12}));
  const auto part = [&](int64_t begin, int64_t end) { return ops::slice(x, 1, begin, end); };
  const Value whole = g.input("c", f32({3, 12}));
  for (const auto& [a, b] :
       {std::pair{part(0, 6), part(6, 12)}, std::pair{part(4, 12), part(0, 4)}})
    g.output(str("y", a.id),
             ops::map({ops::concat({a, b}, 1), whole}, [](auto v) { return v[0] * v[1]; }));
  const Graph out = planned(g);
  // Halves of other places; the other one, which is no half, is a segmented operand.
  EXPECT_EQ(count(out, ops::def::concat()), 1) << to_text(out);
  for (const Node& n : out.nodes())
    EXPECT_TRUE(n.op != &ops::def::loop() || n.attrs.as<ops::Loop>().swaps.empty());
  expect_equal(in_primitives(g), in_primitives(out));
}

}  // namespace
}  // namespace ebb::test::swaps_test
