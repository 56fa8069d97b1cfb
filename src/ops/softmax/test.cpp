#include "ops/softmax/op.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/one_op.h"

namespace ebb {
namespace {

TEST(softmax, rows__are_their_exponentials_by_their_sum) {
  const auto y = test::run_one({{{2, 2}, {0, std::log(3.0), 5, 5}}},
                               [](auto x) { return ops::softmax(x[0]); });
  const double want[] = {0.25, 0.75, 0.5, 0.5};
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(y.v[i], want[i], 1e-15);
}

TEST(softmax, huge_values__do_not_overflow) {
  const auto y = test::run_one({{{2}, {5000, -5000}}}, [](auto x) { return ops::softmax(x[0]); });
  EXPECT_EQ(y.v, (std::vector<double>{1, 0}));
}

}  // namespace
}  // namespace ebb
