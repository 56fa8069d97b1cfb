#include "base/fast_div.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

namespace ebb {
namespace {

TEST(fast_div, quotients_and_remainders__are_those_of_a_division) {
  constexpr int64_t largest = std::numeric_limits<int>::max();
  for (const int64_t by : {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{5}, int64_t{7}, int64_t{64},
                           int64_t{641}, int64_t{65535}, int64_t{65537}, int64_t{1} << 30,
                           (int64_t{1} << 30) + 1, largest - 1, largest}) {
    const FastDiv d(by);
    for (const int64_t multiple : {int64_t{0}, by, 2 * by, 1000 * by, largest / by * by, largest})
      for (const int64_t n : {multiple - 1, multiple, multiple + 1}) {
        if (n < 0 || n > largest) continue;
        const Divided got = d.divide(static_cast<int>(n));
        EXPECT_EQ(got.quotient, n / by) << n << " / " << by;
        EXPECT_EQ(got.remainder, n % by) << n << " / " << by;
      }
  }
}

TEST(fast_div, none__is_zero) { EXPECT_EQ(FastDiv(0).by, 0); }

TEST(fast_div, divisors_that_no_multiplier_stands_for__are_errors) {
  EXPECT_THROW(FastDiv{-1}, Error);
  EXPECT_THROW(FastDiv{divisible}, Error);
}

}  // namespace
}  // namespace ebb
