// Expressions as code: simplification, precision; divisions by numbers that the host knows.
#include "codegen/expr_writer.h"

#include <gtest/gtest.h>

#include <span>

#include "support/every_function.h"

namespace ebb::codegen {
namespace {

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
