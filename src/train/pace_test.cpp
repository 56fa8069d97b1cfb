#include "train/pace.h"

#include <gtest/gtest.h>

namespace ebb::train {
namespace {

TEST(pace, left__has_the_steps_and_what_comes_between_them) {
  Pace pace;
  EXPECT_EQ(pace.left(0, 10), 0);  // unknown
  pace.step(2);
  EXPECT_EQ(pace.seconds_a_step(), 2);
  EXPECT_EQ(pace.left(4, 10), 12);
  EXPECT_EQ(pace.left(10, 10), 0);
  pace.took("sample", 4, 3);
  EXPECT_EQ(pace.left(4, 10), 12 + 2 * 3);  // of steps 8 and 10
  EXPECT_EQ(pace.left(4, 12), 16 + 2 * 3);  // of 8 and 12
  pace.took("sample", 0, 3);                // behind the last step alone
  EXPECT_EQ(pace.left(4, 10), 12 + 3);
  bool ran = false;
  pace.timed("sample", 0, [&] { ran = true; });
  EXPECT_TRUE(ran);
  EXPECT_LT(pace.left(4, 10), 12 + 3);
}

}  // namespace
}  // namespace ebb::train
