#include "ir/expr.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <vector>

#include "support/files.h"

namespace ebb::expr_test {
namespace {

const Scalar x = Scalar::input(0), y = Scalar::input(1), z = Scalar::input(2);

Expr expr_of(int64_t inputs, std::vector<Scalar> results) { return Expr(inputs, results); }

double at(const Scalar& s, std::vector<double> in) {
  double out = 0;
  expr_of(static_cast<int64_t>(in.size()), {s}).evaluate(in, {&out, 1});
  return out;
}

using testing::error_of;

TEST(expr, every_function__computes_its_function) {
  EXPECT_DOUBLE_EQ(at(x + y * 2.0 - x / y, {3, 4}), 3 + 8 - 0.75);
  EXPECT_DOUBLE_EQ(at(min(x, y), {3, 4}), 3);
  EXPECT_DOUBLE_EQ(at(max(x, y), {3, 4}), 4);
  EXPECT_DOUBLE_EQ(at(less(x, y), {3, 4}), 1);
  EXPECT_DOUBLE_EQ(at(less(x, y), {4, 4}), 0);
  EXPECT_DOUBLE_EQ(at(pow(x, y), {3, 4}), 81);
  EXPECT_DOUBLE_EQ(at(-abs(x), {-3}), -3);
  EXPECT_DOUBLE_EQ(at(sqrt(x), {9}), 3);
  EXPECT_DOUBLE_EQ(at(rsqrt(x), {16}), 0.25);
  EXPECT_DOUBLE_EQ(at(exp(log(x)), {5}), 5);
  EXPECT_DOUBLE_EQ(at(sin(x) * sin(x) + cos(x) * cos(x), {0.7}), 1);
  EXPECT_DOUBLE_EQ(at(tanh(x), {0.3}), std::tanh(0.3));
  EXPECT_DOUBLE_EQ(at(sigmoid(x), {-2}), 1 / (1 + std::exp(2)));
  EXPECT_DOUBLE_EQ(at(sigmoid(x), {-800}), 0);  // neither overflows nor is NaN
  EXPECT_DOUBLE_EQ(at(sigmoid(x), {800}), 1);
  EXPECT_DOUBLE_EQ(at(erf(x), {0.4}), std::erf(0.4));
  EXPECT_DOUBLE_EQ(at(floor(x), {-0.5}), -1);
  EXPECT_DOUBLE_EQ(at(rounded(x, DType::bf16), {1.00390625}), 1);  // a tie, to even
  EXPECT_DOUBLE_EQ(at(rounded(x, DType::bf16), {1.01171875}), 1.015625);
  EXPECT_DOUBLE_EQ(at(rounded(x, DType::f16), {65520}), INFINITY);
  EXPECT_DOUBLE_EQ(at(rounded(x, DType::f32), {0.1}), 0.1);
  EXPECT_DOUBLE_EQ(at(select(x, y, z), {0, 4, 5}), 5);
  EXPECT_DOUBLE_EQ(at(select(x, y, z), {-1, 4, 5}), 4);
}

TEST(expr, comparison_with_nan__is_false) {
  EXPECT_EQ(at(less(x, 1.0), {NAN}), 0);
  EXPECT_TRUE(std::isnan(at(max(0.0, x), {NAN})));  // relu lets it through
}

std::vector<ScalarOp> functions() {
  std::vector<ScalarOp> out;
  for (int i = static_cast<int>(ScalarOp::add); i <= static_cast<int>(ScalarOp::select); ++i)
    out.push_back(static_cast<ScalarOp>(i));
  return out;
}

Scalar use_of(ScalarOp op) {
  switch (info_of(op).arguments) {
    case 1: return Scalar::make(op, x);
    case 2: return Scalar::make(op, x, y);
    default: return Scalar::make(op, x, y, z);
  }
}

class Functions : public ::testing::TestWithParam<ScalarOp> {};

// What rounds is constant almost everywhere, and has the gradient of what it rounds.
bool rounds(ScalarOp op) { return op == ScalarOp::bf16 || op == ScalarOp::f16; }

TEST_P(Functions, gradient__equals_differences) {
  const Scalar all[] = {x, y, z};
  const Scalar weight[] = {1.7};
  const Expr f = expr_of(3, {use_of(GetParam())});
  const std::vector<Scalar> gradient = f.gradient(all, weight);
  for (const std::vector<double>& p :
       {std::vector<double>{0.6, 1.3, -0.4}, {2.2, 0.7, 1.9}, {1.1, 1.4, 0.3}}) {
    for (size_t i = 0; i < 3; ++i) {
      const double h = 1e-5;
      std::vector<double> up = p, down = p;
      up[i] += h;
      down[i] -= h;
      double a = 0, b = 0;
      f.evaluate(up, {&a, 1});
      f.evaluate(down, {&b, 1});
      const double slope = rounds(GetParam()) ? (i == 0) : (a - b) / (2 * h);
      EXPECT_NEAR(at(gradient[i], p), 1.7 * slope, 1e-8)
          << info_of(GetParam()).name << ", argument " << i;
    }
  }
}

TEST_P(Functions, text__reads_back) {
  const Expr f = expr_of(3, {use_of(GetParam()), x});
  Expr g;
  g.parse(f.text());
  EXPECT_EQ(g, f) << f.text();
  EXPECT_EQ(g.text(), f.text());
}

TEST_P(Functions, constants__fold) {
  const ScalarOp op = GetParam();
  const Scalar folded = expr_of(3, {use_of(op)}).apply(std::vector<Scalar>{0.3, 0.7, 0.2})[0];
  ASSERT_TRUE(folded.is_constant());
  EXPECT_DOUBLE_EQ(folded.node().value, evaluate(op, 0.3, 0.7, 0.2));
}

INSTANTIATE_TEST_SUITE_P(expr, Functions, ::testing::ValuesIn(functions()),
                         [](const auto& info) { return std::string(info_of(info.param).name); });

TEST(expr, kinks__have_the_gradient_of_one_side) {
  const Scalar one[] = {1.0}, args[] = {x};
  const auto slope = [&](const Scalar& f, double v) {
    return at(expr_of(1, {f}).gradient(args, one)[0], {v});
  };
  EXPECT_EQ(slope(max(0.0, x), 0), 0);  // relu, as everybody else has it
  EXPECT_EQ(slope(abs(x), 0), 0);
}

TEST(expr, neutral_elements__vanish) {
  const auto same = [](const Scalar& a, const Scalar& b) { return &a.node() == &b.node(); };
  EXPECT_TRUE(same(x + 0.0, x));
  EXPECT_TRUE(same(0.0 + x, x));
  EXPECT_TRUE(same(x - 0.0, x));
  EXPECT_TRUE(same(x * 1.0, x));
  EXPECT_TRUE(same(-(-x), x));
  EXPECT_TRUE((x * 0.0).is_constant(0));
  EXPECT_EQ((x * -1.0).node().op, ScalarOp::neg);
  EXPECT_EQ((x / 4.0).node().op, ScalarOp::mul);
  EXPECT_EQ(pow(x, 2.0).node().op, ScalarOp::mul);
  EXPECT_TRUE(same(select(1.0, x, y), x));
  EXPECT_TRUE(same(select(0.0, x, y), y));
}

TEST(expr, common_part__stands_once) {
  const Expr f = expr_of(1, {exp(x) + exp(x), exp(x)});
  int exps = 0;
  for (const auto& i : f.code()) exps += i.op == ScalarOp::exp;
  EXPECT_EQ(exps, 1);
  EXPECT_EQ(f.text(), "<1|t1=exp(x0);t2=add(t1,t1)|t2,t1>");
}

TEST(expr, apply__puts_expressions_in_place_of_inputs) {
  const Expr f = expr_of(2, {x * y});
  const Scalar arguments[] = {x + 1.0, sin(x)};
  EXPECT_DOUBLE_EQ(at(f.apply(arguments)[0], {0.5}), 1.5 * std::sin(0.5));
  EXPECT_TRUE(f.uses(1));
  EXPECT_FALSE(expr_of(2, {x}).uses(1));
}

TEST(expr, constants_and_special_results__read_back) {
  const Expr f = expr_of(1, {x * 0.1, Scalar(1e-300), x, Scalar(-3.0)});
  Expr g;
  g.parse(f.text());
  EXPECT_EQ(g.text(), f.text());
  double a[4], b[4];
  const double in[] = {0.7};
  f.evaluate(in, a);
  g.evaluate(in, b);
  for (int k = 0; k < 4; ++k) EXPECT_EQ(a[k], b[k]);
}

TEST(expr, bad_text__says_what_is_wrong) {
  const auto parse = [](std::string_view text) {
    return error_of([&] {
      Expr e;
      e.parse(text);
    });
  };
  EXPECT_EQ(parse("1||x0"), "expr: must stand in <> (got '1||x0')");
  EXPECT_EQ(parse("<1>"), "expr: needs two bars (got '<1>')");
  EXPECT_EQ(parse("<1|t0=sqr(x0)|t0>"), "expr: unknown function 'sqr' (did you mean 'sqrt'?)");
  EXPECT_EQ(parse("<1|t0=add(x0)|t0>"), "expr: add takes 2 arguments (got 1)");
  EXPECT_EQ(parse("<1|t0=exp|t0>"), "expr: expected t=f(...) (got 't0=exp')");
  EXPECT_EQ(parse("<1||x3>"), "expr: input 3 is out of range (1 inputs)");
  EXPECT_EQ(parse("<1||t5>"), "expr: expected a number (got 't5')");
  EXPECT_EQ(parse("<1||>x"), "expr: must stand in <> (got '<1||>x')");
}

TEST(expr, constants_that_are_not_equal__stay_apart) {
  const Scalar x = Scalar::input(0), y = Scalar::input(1), not_a_number = log(Scalar(-1.0));
  const Scalar results[] = {select(less(x, y), not_a_number, 2.0),
                            select(less(x, y), 2.0, not_a_number)};
  const Expr e(2, results);
  std::array<double, 2> out{};
  e.evaluate(std::array{0.0, 1.0}, out);
  EXPECT_TRUE(std::isnan(out[0]));
  EXPECT_EQ(out[1], 2);
  e.evaluate(std::array{1.0, 0.0}, out);
  EXPECT_EQ(out[0], 2);
  EXPECT_TRUE(std::isnan(out[1]));
}

}  // namespace
}  // namespace ebb::expr_test
