#include "ir/formula.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "base/error.h"

namespace ebb {
namespace {

const std::vector<std::string> xy = {"x", "y"};
constexpr double nan = std::numeric_limits<double>::quiet_NaN(),
                 inf = std::numeric_limits<double>::infinity();

double value(std::string_view text, double x = 0, double y = 0) {
  const double in[] = {x, y};
  double out = 0;
  parse_formula(text, xy).evaluate(in, {&out, 1});
  return out;
}

std::string error_of(std::string_view text) {
  try {
    parse_formula(text, xy);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(formula, precedence__is_that_of_python) {
  EXPECT_EQ(value("1 + 2 * 3"), 7);
  EXPECT_EQ(value("(1 + 2) * 3"), 9);
  EXPECT_EQ(value("-x ** 2", 3), -9);
  EXPECT_EQ(value("2 ** 3 ** 2"), 512);
  EXPECT_EQ(value("2 ** -x", 1), 0.5);
  EXPECT_EQ(value("8 / 4 / 2"), 1);
  EXPECT_EQ(value("7 - 4 - 2"), 1);
  EXPECT_EQ(value("- - x + +y", 2, 5), 7);
  EXPECT_EQ(value(" 1.5e1*x/.5 ", 2), 60);
  EXPECT_EQ(value("x + y < 3 * y", 1, 1), 1);
}

TEST(formula, functions__are_those_of_scalars) {
  EXPECT_DOUBLE_EQ(value("x * sigmoid(1.702 * x)", 0.7), 0.7 / (1 + std::exp(-1.702 * 0.7)));
  EXPECT_DOUBLE_EQ(value("rsqrt(x) + erf(y)", 4, 0.3), 0.5 + std::erf(0.3));
  EXPECT_EQ(value("where(x < y, x, y)", 3, 2), 2);
  EXPECT_EQ(value("select(x < y, x, y)", 1, 2), 1);
  EXPECT_EQ(value("min(x, y, -1) + max(x, y, 5, 2)", 3, 2), 4);
  EXPECT_EQ(value("pow(x, 3)", 2), 8);
}

TEST(formula, comparisons__treat_nan_as_ieee_does) {
  for (const double a : {-inf, -1.0, 0.0, 2.0, inf, nan})
    for (const double b : {-inf, -1.0, 0.0, 2.0, inf, nan}) {
      SCOPED_TRACE(str(a, " ", b));
      EXPECT_EQ(value("x < y", a, b), a < b);
      EXPECT_EQ(value("x > y", a, b), a > b);
      EXPECT_EQ(value("x <= y", a, b), a <= b);
      EXPECT_EQ(value("x >= y", a, b), a >= b);
      EXPECT_EQ(value("x == y", a, b), a == b);
      EXPECT_EQ(value("x != y", a, b), a != b);
    }
}

TEST(formula, several__are_several_results) {
  const Expr e = parse_formula("x + y, x * y", xy);
  const double in[] = {3, 4};
  double out[2];
  e.evaluate(in, out);
  EXPECT_EQ(out[0], 7);
  EXPECT_EQ(out[1], 12);
  EXPECT_EQ(e.inputs(), 2);
}

TEST(formula, errors__name_the_column_and_the_nearest_name) {
  const auto starts = [](std::string_view text, std::string_view with) {
    EXPECT_TRUE(error_of(text).starts_with(with)) << error_of(text);
  };
  starts("x + z", "formula: column 5: unknown name 'z'");
  starts("x * sigmod(x)", "formula: column 5: unknown function 'sigmod' (did you mean 'sigmoid'?)");
  starts("x +", "formula: column 4: the formula ends too early");
  starts("(x + y", "formula: column 7: expected ')'");
  starts("x y", "formula: column 3: unexpected 'y'");
  starts("x ? y", "formula: column 3: unexpected '?'");
  starts("exp(x, y)", "formula: column 1: exp takes 1 (got 2)");
  starts("min(x)", "formula: column 1: min takes 2 and more (got 1)");
  starts("1e999", "formula: column 1: no number that a double holds");
  starts("x < y < 1", "formula: column 7: unexpected '<'");
  starts("", "formula: column 1: the formula ends too early");
  starts(std::string(5000, '('), "formula: at most 4096 characters (got 5000)");
}

TEST(formula, any_text__is_a_formula_or_an_error) {
  std::mt19937 random(7);
  const std::string letters = "xy()+-*/<>=!., 019eexpminwhere\xff\n";
  int good = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (size_t n = random() % 12; n > 0; --n) text += letters[random() % letters.size()];
    good += error_of(text).empty();
  }
  EXPECT_GT(good, 100);
  EXPECT_EQ(error_of(std::string(2000, '(') + "x" + std::string(2000, ')')), "");
  EXPECT_EQ(error_of("x" + std::string(4000, '-') + "x"), "");
  std::string sum = "x";
  while (sum.size() < 4000) sum += "+x*y";
  EXPECT_EQ(error_of(sum), "");
}

}  // namespace
}  // namespace ebb
