#include "base/inline_vector.h"

#include <gtest/gtest.h>

namespace ebb {
namespace {

TEST(InlineVector, keeps_its_elements_when_they_outgrow_it) {
  InlineVector<int, 3> v;
  EXPECT_TRUE(v.empty());
  for (int i = 0; i < 8; ++i) {
    v.push_back(10 * i);
    ASSERT_EQ(v.size(), static_cast<size_t>(i) + 1);
    for (int k = 0; k <= i; ++k) EXPECT_EQ(v[static_cast<size_t>(k)], 10 * k);
  }
  const InlineVector<int, 3> copy = v;
  EXPECT_TRUE(std::ranges::equal(copy, v));
  EXPECT_NE(copy.data(), v.data());
}

}  // namespace
}  // namespace ebb
