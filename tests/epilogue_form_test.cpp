// Forms of epilogues: what kernels know an expression by, and what only looks like it.
#include "ops/prim/epilogue_form.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "ops/gelu_tanh/op.h"
#include "ops/prim/matmul/op.h"
#include "support/graphs.h"

namespace ebb::test::epilogue_form_test {
namespace {

Expr expression(const std::function<Scalar(const Scalar&)>& f) {
  const Scalar y[] = {f(Scalar::input(0))};
  return Expr(1, y);
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
}

// x0 act'(x1).
Expr gradient_of(const std::function<Scalar(const Scalar&)>& act) {
  const Scalar dy[] = {Scalar::input(0)}, x[] = {Scalar::input(1)};
  return Expr(2, expression(act).gradient(x, dy));
}

TEST(gate_gradient_of, activations_that_are_written_as_gradients__known) {
  const auto silu = ops::gate_gradient_of(gradient_of([](auto x) { return x * sigmoid(x); }));
  ASSERT_TRUE(silu);
  EXPECT_EQ(silu->linear, 1);
  const auto tanh_gelu = ops::gate_gradient_of(gradient_of([](const Scalar& x) {
    return 0.5 * x * (1 + tanh(ops::GeluTanh::outer * (x + ops::GeluTanh::inner * x * x * x)));
  }));
  ASSERT_TRUE(tanh_gelu);
  EXPECT_NEAR(tanh_gelu->linear, 2 * ops::GeluTanh::outer, 1e-12);
  const auto gelu = ops::gate_gradient_of(
      gradient_of([](const Scalar& x) { return 0.5 * x * (1 + erf(x * std::sqrt(0.5))); }));
  ASSERT_TRUE(gelu);
  EXPECT_TRUE(gelu->erf);
}

TEST(gate_gradient_of, expressions_that_look_like_gradients__none) {
  const Scalar dy = Scalar::input(0), x = Scalar::input(1), s = sigmoid(x);
  const auto of = [](const Scalar& y) { return ops::gate_gradient_of(Expr(2, {&y, 1})); };
  ASSERT_TRUE(of(dy * (s + x * (s * (1 - s)))));
  EXPECT_FALSE(of(dy * (s + x * (s * (1 - s))) + 1e-9));
  EXPECT_FALSE(of(dy * dy * (s + x * (s * (1 - s)))));
  EXPECT_FALSE(of(dy * (s + x * (s * (1.001 - s)))));
  EXPECT_FALSE(of(dy * (x * sigmoid(x))));
  EXPECT_FALSE(of(min(dy * (s + x * (s * (1 - s))), 10)));
}

// ---- forms of epilogues

Signature matmul_use(ops::Matmul attrs, std::vector<Type> in) {
  Signature s{&ops::def::matmul(), std::move(attrs), std::move(in), {}, ""};
  s.out = s.op->infer(s);
  return s;
}

TEST(epilogue_form, what_is_read_but_for_the_sum_with_the_bias__none) {
  const Scalar z = Scalar::input(0), bias = Scalar::input(1);
  const auto of = [](const Scalar& y) {
    return ops::epilogue_form(matmul_use({.trans_b = true, .epilogue = {Expr(2, {&y, 1}), 1}},
                                         {f32({5, 8}), f32({16, 8}), f32({16})}));
  };
  const auto silu = [](const Scalar& x) { return x * sigmoid(x); };
  ASSERT_TRUE(of(silu(z + bias)));
  EXPECT_TRUE(of(silu(bias + z)));
  EXPECT_FALSE(of(silu(z) + bias));
  EXPECT_FALSE(of(silu(z * bias)));
  EXPECT_FALSE(of(silu(z + bias) * bias));
}

TEST(epilogue_form, second_results__are_the_sums_themselves) {
  const Scalar z = Scalar::input(0);
  const auto of = [](std::vector<Scalar> y) {
    return ops::epilogue_form(
        matmul_use({.trans_b = true, .epilogue = {Expr(1, y), 1}}, {f32({5, 8}), f32({16, 8})}));
  };
  EXPECT_TRUE(of({z * sigmoid(z), z}));
  EXPECT_FALSE(of({z * sigmoid(z), 2.0 * z}));
}

TEST(epilogue, text__reads_back) {
  const Scalar y = Scalar::input(0) * Scalar::input(1);
  const Expr e(2, {&y, 1});
  for (const Epilogue& written :
       {Epilogue{}, Epilogue(e, 1), Epilogue(e, 2), Epilogue(e, 1, {0, 5}), Epilogue(e, 2, {7})}) {
    Epilogue read;
    read.parse(written.text());
    EXPECT_EQ(read, written) << written.text();
  }
  EXPECT_THROW(Epilogue{}.parse("<2|t2=mul(x0,x1)|t2>[rows=3]"), Error);
  EXPECT_THROW(Epilogue{}.parse("parts=3"), Error);
}

}  // namespace
}  // namespace ebb::test::epilogue_form_test
