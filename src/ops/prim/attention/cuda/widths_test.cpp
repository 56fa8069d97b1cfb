// The choice of a kernel by the width of heads.
#include "ops/prim/attention/cuda/widths.h"

#include <gtest/gtest.h>

namespace ebb::ops::cuda {
namespace {

int chosen(int64_t width) {
  return with_width<32, 40, 128>(width, [](auto d) { return d.value; });
}

TEST(with_width, takes_the_narrowest_that_holds_a_head) {
  EXPECT_EQ(chosen(8), 32);
  EXPECT_EQ(chosen(32), 32);
  EXPECT_EQ(chosen(33), 40);
  EXPECT_EQ(chosen(40), 40);
  EXPECT_EQ(chosen(72), 128);
  EXPECT_EQ(chosen(128), 128);
}

TEST(with_width, takes_the_last_for_wider_ones) { EXPECT_EQ(chosen(160), 128); }

}  // namespace
}  // namespace ebb::ops::cuda
