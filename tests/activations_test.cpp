// fuse_activations: which expressions fuse into matmuls, and that results stay the same.
#include "passes/activations.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/gelu/op.h"
#include "ops/gelu_tanh/op.h"
#include "ops/matmul_act/op.h"
#include "ops/mse/op.h"
#include "ops/mul/op.h"
#include "ops/prim/matmul/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/silu/op.h"
#include "ops/split/op.h"
#include "passes/gradients.h"
#include "passes/lower.h"
#include "passes/simplify.h"
#include "support/graphs.h"
#include "support/same_results.h"

namespace ebb::test {
namespace {

Graph lowered(const Graph& g) { return common_subexpressions(in_primitives(g)); }

Graph pass(const Graph& g) {
  Graph out = dead_code(fuse_activations(lowered(g), all_same_cost_class));
  verify(out, "activations");
  return out;
}

std::vector<ops::MatmulAct> fused_activations(const Graph& g) {
  std::vector<ops::MatmulAct> all;
  for (const Node& n : g.nodes())
    if (n.op == &ops::def::matmul_act()) all.push_back(n.attrs.as<ops::MatmulAct>());
  return all;
}

// A transformer's MLP: two layers, an activation between them.
struct Mlp {
  Graph g;
  Value x = g.input("x", f32({2, 3, 4}));
  Value w1 = g.source(Source::Kind::param, "w1", f32({6, 4}));
  Value b1 = g.source(Source::Kind::param, "b1", f32({6}));
  Value w2 = g.source(Source::Kind::param, "w2", f32({4, 6}));
};

TEST(activations, of_a_layer__is_the_layers_own_result) {
  Mlp m;
  m.g.output("y", ops::linear(ops::gelu_tanh(ops::linear(m.x, m.w1, m.b1)), m.w2));
  const Graph out = pass(m.g);
  ASSERT_EQ(fused_activations(out).size(), 1u);
  EXPECT_TRUE(ops::gate_of(fused_activations(out)[0].act));
  EXPECT_FALSE(fused_activations(out)[0].keep);
  EXPECT_EQ(count(out, ops::def::pointwise()), 0);
  expect_equal(m.g, out);
}

TEST(activations, of_a_layer_that_others_read__keeps_the_layer_too) {
  Mlp m;
  const Value z = ops::linear(m.x, m.w1);
  m.g.output("z", z);
  m.g.output("y", ops::silu(z));
  const Graph out = pass(m.g);
  ASSERT_EQ(fused_activations(out).size(), 1u);
  EXPECT_TRUE(fused_activations(out)[0].keep);
  expect_equal(m.g, out);
}

TEST(activations, gradients_of_an_mlp__fuse_the_activation_gradient) {
  Mlp m;
  const Value y = ops::linear(ops::gelu_tanh(ops::linear(m.x, m.w1, m.b1)), m.w2);
  m.g.output("loss", ops::mse(y, m.x));
  const std::string wrt[] = {"w1", "b1", "w2"};
  const Graph backward = gradients(m.g, "loss", wrt);
  const Graph out = pass(backward);
  ASSERT_EQ(fused_activations(out).size(), 2u);
  EXPECT_TRUE(fused_activations(out)[0].keep);
  EXPECT_TRUE(fused_activations(out)[1].grad);
  expect_equal(backward, out);
}

// x [2,3,4] -> [2,3,3]: one half of a layer of 6 columns times an activation of the other.
Value gated_layer(Mlp& m, const std::function<Value(std::vector<Value>)>& gate) {
  return gate(ops::split(ops::linear(m.x, m.w1, m.b1), -1, 2));
}
Value geglu(std::vector<Value> half) { return half[0] * ops::gelu(half[1]); }
Value swiglu(std::vector<Value> half) { return ops::silu(half[0]) * half[1]; }

TEST(activations, gates_of_a_layer__are_the_layers_own_result) {
  for (const bool silu : {false, true}) {
    Mlp m;
    m.g.output("y", gated_layer(m, silu ? swiglu : geglu));
    const Graph out = pass(m.g);
    ASSERT_EQ(out.nodes().size(), 1u);
    const ops::MatmulAct a = out.nodes()[0].attrs.as<ops::MatmulAct>();
    EXPECT_FALSE(a.keep);
    const auto gate = ops::gate_of(a.act);
    ASSERT_TRUE(gate);
    EXPECT_EQ(gate->of, silu ? 0u : 1u);
    EXPECT_EQ(gate->erf, !silu);
    expect_equal(m.g, out);
  }
}

TEST(activations, gates_that_an_expression_alone_reads__fuse_too) {
  Mlp m;
  const auto twice = [](auto v) { return v[0] * 2.0; };
  m.g.output("y", ops::map({gated_layer(m, geglu)}, twice));
  const Graph out = pass(m.g);
  ASSERT_EQ(fused_activations(out).size(), 1u);
  expect_equal(m.g, out);
}

TEST(activations, gates_in_training__keep_the_layer_for_its_gradient) {
  Mlp m;
  const Value y = gated_layer(m, geglu);
  m.g.output("loss", ops::mse(y, m.g.input("t", f32({2, 3, 3}))));
  const std::string wrt[] = {"w1", "b1"};
  const Graph backward = gradients(m.g, "loss", wrt);
  const Graph out = pass(backward);
  ASSERT_EQ(fused_activations(out).size(), 1u);
  EXPECT_TRUE(fused_activations(out)[0].keep);
  expect_equal(backward, out);
}

TEST(activations, halves_of_two_layers__stay_apart) {
  Mlp m;
  const auto first = ops::split(ops::linear(m.x, m.w1, m.b1), -1, 2);
  const auto second = ops::split(ops::linear(m.x, m.w1), -1, 2);
  m.g.output("y", first[0] * ops::gelu(second[1]));
  EXPECT_TRUE(fused_activations(pass(m.g)).empty());
}

TEST(activations, gates_of_other_types_than_the_layer__stay) {
  Mlp repeated, rounded;
  const Scalar x[] = {Scalar::input(0), Scalar::input(1)}, y[] = {x[0] * (x[1] * sigmoid(x[1]))};
  const auto add = [&](Mlp& m, const Shape& shape, const char* dtype) {
    const auto half = ops::split(ops::linear(m.x, m.w1, m.b1), -1, 2);
    m.g.output("y", ops::pointwise(m.g, {Expr(2, y), shape.sizes(), dtype}, half)[0]);
    const Graph out = pass(m.g);
    EXPECT_TRUE(fused_activations(out).empty());
    expect_equal(m.g, out);
  };
  add(repeated, {5, 2, 3, 3}, "");
  add(rounded, {}, "bf16");
}

TEST(activations, rows_of_a_layer__are_no_halves_of_columns) {
  Mlp m;
  const auto half = ops::split(ops::linear(m.x, m.w1, m.b1), 0, 2);
  m.g.output("y", half[0] * ops::gelu(half[1]));
  EXPECT_TRUE(fused_activations(pass(m.g)).empty());
}

TEST(activations, that_an_expression_alone_reads__stay_for_fuse) {
  Mlp m;
  const auto twice = [](auto v) { return v[0] * 2.0; };
  m.g.output("y", ops::map({ops::silu(ops::linear(m.x, m.w1))}, twice));
  EXPECT_TRUE(fused_activations(pass(m.g)).empty());
}

TEST(activations, without_a_supporting_kernel__do_not_fuse) {
  Mlp m;
  m.g.output("y", ops::silu(ops::linear(m.x, m.w1)));
  const Graph out = fuse_activations(lowered(m.g), no_same_cost_class);
  EXPECT_TRUE(fused_activations(out).empty());
}

TEST(activations, of_a_wider_dtype_than_the_layer__stay_apart) {
  Graph g;
  const Value x = g.input("x", {DType::bf16, {3, 4}}), w = g.input("w", {DType::bf16, {6, 4}});
  const auto silu = [](auto v) { return v[0] * sigmoid(v[0]); };
  g.output("y", ops::map({ops::linear(x, w)}, silu, "f32"));
  EXPECT_TRUE(fused_activations(pass(g)).empty());
}

Expr expression(const std::function<Scalar(const Scalar&)>& f) {
  const Scalar y[] = {f(Scalar::input(0))};
  return Expr(1, y);
}

TEST(activations, of_a_matmul_by_any_expression__are_offered_to_kernels) {
  Mlp m;
  m.g.output("y", ops::linear(ops::map({ops::linear(m.x, m.w1)}, [](auto v) { return tanh(v[0]); }),
                              m.w2));
  const Graph out = pass(m.g);
  ASSERT_EQ(fused_activations(out).size(), 1u);
  EXPECT_EQ(fused_activations(out)[0].act, expression([](const Scalar& x) { return tanh(x); }));
  expect_equal(m.g, out);
}

TEST(gate_of, silu_and_gelu__coefficients) {
  const auto silu = ops::gate_of(expression([](const Scalar& x) { return x * sigmoid(x); }));
  ASSERT_TRUE(silu);
  EXPECT_NEAR(silu->linear, 1, 1e-12);
  EXPECT_EQ(silu->cubic, 0);
  const Signature s{&ops::def::gelu_tanh(), {}, {f32({})}, {f32({})}, ""};
  const auto gelu = ops::gate_of(expression_of(s));
  ASSERT_TRUE(gelu);
  // (1 + tanh(x)) / 2 = sigmoid(2 x)
  EXPECT_NEAR(gelu->linear, 2 * ops::GeluTanh::outer, 1e-12);
  EXPECT_NEAR(gelu->cubic, 2 * ops::GeluTanh::outer * ops::GeluTanh::inner, 1e-12);
  EXPECT_TRUE(ops::gate_of(expression([](const Scalar& x) { return x / (1 + exp(-1.702 * x)); })));
}

TEST(gate_of, gelu_with_an_error_function__is_known) {
  const auto gelu = ops::gate_of(
      expression([](const Scalar& x) { return 0.5 * x * (1 + erf(x * std::sqrt(0.5))); }));
  ASSERT_TRUE(gelu);
  EXPECT_TRUE(gelu->erf);
}

TEST(gate_of, expressions_of_two_inputs__which_is_activated) {
  const Scalar x[] = {Scalar::input(0), Scalar::input(1)};
  const auto of = [](const Scalar& y) { return ops::gate_of(Expr(2, {&y, 1})); };
  EXPECT_EQ(of(x[0] * (x[1] * sigmoid(x[1])))->of, 1u);
  EXPECT_EQ(of(x[0] * sigmoid(x[0]) * x[1])->of, 0u);
  EXPECT_FALSE(of(x[0] * sigmoid(x[1])));
  EXPECT_FALSE(of(x[0] * sigmoid(x[0]) + x[1]));
  EXPECT_FALSE(of(x[0] * x[1]));
}

// A kernel that took one of these for the activation that it looks like would drop the rest.
TEST(gate_of, expressions_that_look_like_activations__none) {
  const auto silu = [](const Scalar& x) { return x * sigmoid(x); };
  const auto gelu = [](const Scalar& x) { return 0.5 * x * (1 + erf(x * std::sqrt(0.5))); };
  const auto none = [](const std::function<Scalar(const Scalar&)>& f) {
    EXPECT_FALSE(ops::gate_of(expression(f))) << expression(f).text();
  };
  constexpr double pi = 3.141592653589793;
  none([&](const Scalar& x) { return min(silu(x), 10); });
  none([&](const Scalar& x) { return silu(min(x, 10)); });
  none([&](const Scalar& x) { return x * sigmoid(min(x, 10)); });
  none([&](const Scalar& x) { return silu(x) + sin(4 * pi * x); });
  none([&](const Scalar& x) { return silu(x) + max(x - 10, 0); });
  none([&](const Scalar& x) { return min(gelu(x), 10); });
  none([&](const Scalar& x) { return max(gelu(x), -10); });
  none([&](const Scalar& x) { return gelu(min(max(x, -10), 10)); });
  none([&](const Scalar& x) { return select(less(x, 9), gelu(x), 9); });
  none([&](const Scalar& x) { return silu((x + 1e20) - 1e20); });
}

TEST(gate_of, two_inputs_that_look_like_a_gate__none) {
  const Scalar x[] = {Scalar::input(0), Scalar::input(1)};
  const auto of = [](const Scalar& y) { return ops::gate_of(Expr(2, {&y, 1})); };
  const Scalar silu = x[0] * sigmoid(x[0]);
  EXPECT_FALSE(of(x[1] * min(silu, 10)));
  EXPECT_FALSE(of(min(x[1], 10) * silu));
  EXPECT_FALSE(of(min(x[1] * silu, 10)));
  EXPECT_FALSE(of(x[1] * x[1] * silu));
  EXPECT_FALSE(of(x[1] * x[0] * sigmoid(x[0] * x[1])));
}

TEST(gate_of, activations_in_any_order__known) {
  const auto gate = [](const std::function<Scalar(const Scalar&)>& f) {
    return ops::gate_of(expression(f)).value_or(ops::Gate{.linear = 0});
  };
  EXPECT_EQ(gate([](const Scalar& x) { return sigmoid(x) * x; }).linear, 1);
  EXPECT_EQ(gate([](const Scalar& x) { return x / (1 + exp(-x)); }).linear, 1);
  EXPECT_EQ(gate([](const Scalar& x) { return x * (1 / (exp(-x) + 1)); }).linear, 1);
  EXPECT_NEAR(gate([](const Scalar& x) { return x / (1 + exp(-1.702 * x)); }).linear, 1.702, 1e-12);
  EXPECT_TRUE(gate([](const Scalar& x) { return (erf(x / std::sqrt(2.0)) + 1) * x / 2; }).erf);
  EXPECT_TRUE(
      gate([](const Scalar& x) { return 0.5 * x + 0.5 * (x * erf(std::sqrt(0.5) * x)); }).erf);
  const auto tanh_gelu = gate([](const Scalar& x) {
    return (1 + tanh((x + ops::GeluTanh::inner * pow(x, 3)) * ops::GeluTanh::outer)) * (0.5 * x);
  });
  EXPECT_NEAR(tanh_gelu.linear, 2 * ops::GeluTanh::outer, 1e-12);
  EXPECT_NEAR(tanh_gelu.cubic, 2 * ops::GeluTanh::outer * ops::GeluTanh::inner, 1e-12);
}

TEST(gate_of, other_expressions__none) {
  EXPECT_FALSE(ops::gate_of(expression([](const Scalar& x) { return x; })));
  EXPECT_FALSE(ops::gate_of(expression([](const Scalar& x) { return tanh(x); })));
  EXPECT_FALSE(ops::gate_of(expression([](const Scalar& x) { return max(x, 0); })));
  EXPECT_FALSE(ops::gate_of(expression([](const Scalar& x) { return sigmoid(x); })));
  EXPECT_FALSE(ops::gate_of(expression([](const Scalar& x) { return 0.5 * x * (1 + erf(x)); })));
  EXPECT_FALSE(ops::gate_of(expression([](const Scalar& x) { return x * sigmoid(x) + 1e-9; })));
  EXPECT_FALSE(
      ops::gate_of(ops::activation_grad_of(expression([](const Scalar& x) { return x * x; }))));
}

}  // namespace
}  // namespace ebb::test
