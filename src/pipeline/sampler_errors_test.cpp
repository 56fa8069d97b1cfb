#include "pipeline/sampler_errors.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"

namespace ebb {
namespace {

TEST(sampler_errors, progress__rises_from_the_first_figures_on) {
  std::vector<double> shares;
  const auto stop_soon = [&](double share) {
    shares.push_back(share);
    require(shares.size() < 4, "enough");
  };
  EXPECT_THROW(sampler_error_tables(stop_soon), Error);
  ASSERT_EQ(shares.size(), 4U);
  EXPECT_GT(shares[0], 0);
  for (size_t i = 1; i < shares.size(); ++i) EXPECT_GT(shares[i], shares[i - 1]);
  EXPECT_LT(shares.back(), 0.01);
}

}  // namespace
}  // namespace ebb
