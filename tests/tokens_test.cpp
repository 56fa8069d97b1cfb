// Text and image tokens in one attention (MMDiT): what is computed for each reads and writes the
// joint tensors in place.
#include <gtest/gtest.h>

#include "backends.h"
#include "ir/text.h"
#include "ops/loop/op.h"
#include "ops/prim/attention/op.h"
#include "ops/prim/concat/op.h"
#include "ops/prim/matmul/op.h"
#include "ops/prim/slice/op.h"
#include "ops/rms_norm/op.h"
#include "ops/rope/op.h"
#include "passes/fusion/fuse_loops.h"
#include "passes/fusion/inline_producers.h"
#include "passes/gradients.h"
#include "passes/simplify.h"
#include "passes/views/elide_copies.h"
#include "passes/views/hoist_views.h"
#include "runtime/context.h"
#include "runtime/launches.h"
#include "support/graphs.h"
#include "support/same_results.h"

namespace ebb::test::tokens_test {
namespace {

constexpr int64_t text = 16, image = 48, heads = 3, head_width = 64;

Graph planned_tokens(const Graph& g) {
  Graph low = common_subexpressions(dead_code(in_primitives(g)));
  low = dead_code(inline_producers(drop_unused_inputs(hoist_views(low)), {}));
  Graph out = elide_copies(fuse_loops(low, {all_supported}), all_supported);
  verify(out, "tokens");
  return out;
}

// Projections of two images' tokens.
struct Tokens {
  Graph g;
  Value of(const std::string& name, int64_t tokens) {
    return g.input(name, f32({2, tokens, heads, head_width}));
  }
  Value norm(const std::string& name, int64_t tokens) {
    return ops::rms_norm(of(name, tokens), g.input("gamma_" + name, f32({head_width})), {});
  }
  Value table(const std::string& name, int64_t tokens) {
    return g.input(name, f32({tokens, head_width / 2}));
  }
  Value rotated(Value x, const std::string& tables) {
    return ops::rope(x, table("cos" + tables, x.shape()[1]), table("sin" + tables, x.shape()[1]));
  }
};

Value joined(Value a, Value b) { return ops::concat({a, b}, 1); }

// As SD3: norms with weights of text's and images' own.
TEST(tokens, norms_of_both__are_one_loop_that_writes_the_joint_tensor) {
  Tokens t;
  const Value q = joined(t.norm("tq", text), t.norm("iq", image));
  const Value k = joined(t.norm("tk", text), t.norm("ik", image));
  const Value v = joined(t.of("tv", text), t.of("iv", image));
  t.g.output("y", ops::attention(q, k, v));
  const Graph out = planned_tokens(t.g);
  EXPECT_EQ(count_loops(out, ops::LoopKind::rows), 2) << to_text(out);
  EXPECT_EQ(count(out, ops::def::concat()), 1) << to_text(out);  // of v, which nothing computes
  EXPECT_EQ(count(out, ops::def::pointwise()), 0);
  expect_equal(in_primitives(t.g), in_primitives(out));
}

// As Flux: the rotation is of both together. And each rotated by tables of its own.
TEST(tokens, norms_and_rotations_of_both__are_one_loop) {
  Tokens together, apart;
  together.g.output(
      "y", together.rotated(joined(together.norm("tq", text), together.norm("iq", image)), ""));
  apart.g.output("y", joined(apart.rotated(apart.norm("tq", text), "_t"),
                             apart.rotated(apart.norm("iq", image), "_i")));
  for (const Tokens* t : {&together, &apart}) {
    const Graph out = planned_tokens(t->g);
    EXPECT_EQ(count_loops(out, ops::LoopKind::rows), 1) << to_text(out);
    for (const Node& n : out.nodes())
      if (n.op->name != "reshape") {
        EXPECT_TRUE(is_loop(n, ops::LoopKind::rows) ||
                    out.type(n.out[0]).shape.numel() < 2 * text * heads * head_width)
            << to_text(out);
      }
    expect_equal(in_primitives(t->g), in_primitives(out));
  }
}

// Ranges of the joint gradients are read where they lie, with the sums for gamma in the same loop.
TEST(tokens, gradients_of_norms__read_ranges_of_the_joint_gradient) {
  for (const int64_t more : {1, 32}) {
    Graph g;
    const auto of = [&](const std::string& name, int64_t tokens) {
      return g.input(name, f32({2, more * tokens, 16, head_width}));
    };
    const auto norm = [&](const std::string& name, int64_t tokens) {
      return ops::rms_norm(of(name, tokens), g.input("gamma_" + name, f32({head_width})), {});
    };
    const Value q = joined(norm("tq", text), norm("iq", image));
    const Value y = ops::attention(q, of("k", text + image), of("v", text + image));
    sum_as_loss(g, scaled(y, of("dy", text + image)));
    const std::vector<std::string> wrt = {"tq", "iq", "gamma_tq", "gamma_iq"};
    const Graph both = dead_code(gradients(g, "loss", wrt)), out = planned_tokens(both);
    if (more == 1)  // few rows, of which reductions of their own make the sums
      expect_equal(in_primitives(both), in_primitives(out));
    else
      EXPECT_EQ(count(out, ops::def::slice()), 0) << to_text(out);
  }
}

// What only copies, or has no reductions along rows, stays as it is.
TEST(tokens, other_work__is_not_joined) {
  Tokens t;
  const auto twice = [](Value v) { return ops::map({v}, [](auto x) { return x[0] * 2.0; }); };
  const Value q = joined(twice(t.of("tq", text)), twice(t.of("iq", image)));
  const Value k = joined(t.norm("tk", text), twice(t.of("ik", image)));
  t.g.output("y", ops::attention(q, k, q));
  EXPECT_EQ(count(planned_tokens(t.g), ops::def::concat()), 2);
}

// What is computed of operands of other dtypes or shapes is not the same work.
TEST(tokens, norms_of_other_operands__are_not_joined) {
  for (const bool other_weights : {false, true}) {
    Graph g;
    const auto norm = [&](const std::string& name, int64_t tokens, DType x, DType gamma) {
      const Value v = g.input(name, {x, {2, tokens, heads, head_width}});
      const Value w = g.input("gamma_" + name, {gamma, {head_width}});
      return ops::cast(ops::rms_norm(v, w, {}), DType::f32);
    };
    const DType narrow = DType::bf16;
    const Value q = joined(norm("tq", text, other_weights ? DType::f32 : narrow, DType::f32),
                           norm("iq", image, DType::f32, other_weights ? narrow : DType::f32));
    g.output("y", q);
    expect_equal(in_primitives(g), in_primitives(planned_tokens(g)));
  }
}

// One token of each kind: weights that are broadcast over tokens are not put side by side.
TEST(tokens, norms_of_one_token_each__are_one_loop) {
  Tokens t;
  t.g.output("y", joined(t.norm("tq", 1), t.norm("iq", 1)));
  expect_equal(in_primitives(t.g), in_primitives(planned_tokens(t.g)));
}

// The launches of an H200, of two images: three projections of each, two loops, the attention, the
// copies of v and of the result's parts.
TEST(tokens, plan__launches_one_loop_for_queries_and_one_for_keys) {
  if (only("cuda").empty()) GTEST_SKIP() << "built without CUDA";
  Graph g;
  const auto bf16 = [](Shape s) { return Type{DType::bf16, std::move(s)}; };
  const auto projected = [&](const std::string& name, int64_t tokens) {
    const Value x = g.input("x_" + name, bf16({2, tokens, heads * head_width}));
    const Value w = g.input("w_" + name, bf16({heads * head_width, heads * head_width}));
    return ops::reshape(ops::linear(x, w, {}), {2, tokens, heads, head_width});
  };
  const auto norm = [&](const std::string& name, int64_t tokens) {
    return ops::rms_norm(projected(name, tokens), g.input("gamma_" + name, f32({head_width})), {});
  };
  const Value q = joined(norm("tq", text), norm("iq", image));
  const Value k = joined(norm("tk", text), norm("ik", image));
  const Value v = joined(projected("tv", text), projected("iv", image));
  const Value y = ops::attention(q, k, v);
  g.output("text", ops::slice(y, 1, 0, text));
  g.output("image", ops::slice(y, 1, text, text + image));
  const Context context = open_context("cuda:h200");
  Lowering l{*context.device, {}};
  const std::string table = launch_table(lowered(g, l), l);
  for (const char* line : {"      12        1.361        0.035  all\n",
                           "       2        0.229        0.000  loop_rows_ptx\n",
                           "       1        0.098        0.000  concat_copy\n",
                           "       2        0.098        0.000  slice_copy\n"})
    EXPECT_NE(table.find(line), std::string::npos) << table;
}

// The same for a norm over all heads and a rotation of each (LTX-Video, Wan): one launch, and the
// tables with both elements of a pair.
TEST(tokens, plan__norm_over_all_heads_and_rotation_are_one_launch) {
  if (only("cuda").empty()) GTEST_SKIP() << "built without CUDA";
  for (const bool half_split : {false, true}) {
    Graph g;
    const Value q = g.input("q", {DType::bf16, {2, 4096, 24 * 128}});
    const Value gamma = g.input("gamma", f32({24 * 128}));
    const Value cos = g.input("cos", f32({4096, 64})), sin = g.input("sin", f32({4096, 64}));
    const Value y = ops::reshape(ops::rms_norm(q, gamma, {}), {2, 4096, 24, 128});
    g.output("y", ops::rope(y, cos, sin, {.half_split = half_split}));
    const Context context = open_context("cuda:h200");
    Lowering l{*context.device, {}};
    const Graph out = lowered(g, l);
    EXPECT_EQ(count_loops(out, ops::LoopKind::rows), 1) << to_text(out);
    for (const Node& n : out.nodes())
      if (!is_loop(n, ops::LoopKind::rows) && n.op->name != "reshape") {
        EXPECT_LE(out.type(n.out[0]).shape.numel(), 4096 * 128) << to_text(out);
      }
    EXPECT_NE(launch_table(out, l).find("       1      155.214"), std::string::npos)
        << launch_table(out, l);
  }
}

}  // namespace
}  // namespace ebb::test::tokens_test
