#include "ops/cross_entropy/op.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/mse/op.h"
#include "support/one_op.h"

namespace ebb {
namespace {

using test::run_one;

double loss(std::vector<double> logits, std::vector<double> labels) {
  const auto n = static_cast<int64_t>(labels.size());
  const auto k = static_cast<int64_t>(logits.size()) / n;
  return run_one({{{n, k}, std::move(logits)}, {{n}, std::move(labels), DType::i64}},
                 [](auto x) { return ops::cross_entropy(x[0], x[1]); })
      .v[0];
}

TEST(cross_entropy, equal_logits__give_log_k) {
  EXPECT_NEAR(loss({2, 2, 2, 2, 2, 2}, {0, 2}), std::log(3.0), 1e-15);
}

TEST(cross_entropy, mean_of_rows) {
  EXPECT_NEAR(loss({0, std::log(3.0), 0, std::log(3.0)}, {0, 1}),
              (std::log(4.0) + std::log(4.0 / 3)) / 2, 1e-15);
}

TEST(cross_entropy, huge_logits__are_finite) {
  EXPECT_EQ(loss({1e4, -1e4}, {1}), 2e4);
  EXPECT_EQ(loss({1e4, -1e4}, {0}), 0);
}

TEST(mse, mean_of_squares) {
  const auto y =
      run_one({{{3}, {1, 2, 3}}, {{3}, {1, 0, 0}}}, [](auto x) { return ops::mse(x[0], x[1]); });
  EXPECT_EQ(y.shape, Shape{});
  EXPECT_DOUBLE_EQ(y.v[0], 13.0 / 3);
}

}  // namespace
}  // namespace ebb
