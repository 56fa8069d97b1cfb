// Expressions as code: simplification, precision; divisions by numbers that the host knows.
#include "codegen/expr_writer.h"

#include <gtest/gtest.h>

#include <span>

#include "support/every_function.h"

namespace ebb::codegen {
namespace {

TEST(codegen_index, divisor__is_exact_below_2_to_31) {
  const int64_t top = (int64_t{1} << 31) - 1;
  for (const int64_t d : {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{7}, int64_t{192},
                          int64_t{65537}, top - 1, top}) {
    const Reciprocal by(d);
    for (const int64_t n :
         {int64_t{0}, d - 1, d, d + 1, 3 * d - 1, 3 * d, top / d * d - 1, top / d * d, top}) {
      if (n < 0 || n > top) continue;
      const uint64_t q = (2 * static_cast<uint64_t>(n) * by.multiplier >> 32) >> by.shift;
      EXPECT_EQ(static_cast<int64_t>(q), n / d) << n << " / " << d;
    }
  }
}

// gelu with tanh, and its derivative.
Expr gelu_tanh() {
  const Scalar x = Scalar::input(0), t = tanh(x * (0.7978845608 + 0.0356774081 * x * x));
  const Scalar r[] = {0.5 * x * (1.0 + t), 0.5 * (t + 1.0) + x * (1.0 - t * t)};
  return Expr(1, r);
}

TEST(codegen_expr, simplified__is_the_same_function_without_tanh) {
  const Expr before = gelu_tanh(), after = simplified(before);
  for (const Expr::Instruction& i : after.code()) EXPECT_NE(i.op, ScalarOp::tanh);
  for (double x = -6; x <= 6; x += 0.01) {
    double want[2], got[2];
    before.evaluate(std::span(&x, 1), want);
    after.evaluate(std::span(&x, 1), got);
    for (int k = 0; k < 2; ++k) EXPECT_NEAR(got[k], want[k], 1e-14);
  }
}

TEST(codegen_expr, simplified__keeps_other_expressions) {
  const Expr all = testing::every_function();
  EXPECT_EQ(simplified(all).results().size(), all.results().size());
  const double in[] = {0.7, 1.3, -0.4};
  std::vector<double> want(all.results().size()), got = want;
  all.evaluate(in, want);
  simplified(all).evaluate(in, got);
  EXPECT_EQ(got, want);
}

TEST(codegen_expr, precision__is_full_for_what_any_f32_result_needs) {
  const Scalar x = Scalar::input(0), e = exp(x);
  const Scalar r[] = {tanh(e), sin(x)};
  const Expr f(1, r);
  const auto full = precisions(f, {true, false});
  const auto narrow = precisions(f, {true, true});
  for (size_t i = 0; i < f.code().size(); ++i) {
    const ScalarOp op = f.code()[i].op;
    EXPECT_EQ(full[i] == Precision::full, op == ScalarOp::sin || op == ScalarOp::input);
    EXPECT_EQ(narrow[i], Precision::narrow);
  }
}

}  // namespace
}  // namespace ebb::codegen
