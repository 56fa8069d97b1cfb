#include "train/pace.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace ebb::train {
namespace {

TEST(pace, left__has_the_steps_and_what_comes_between_them) {
  Pace pace;
  EXPECT_EQ(pace.left(0, 10), 0);  // unknown
  pace.step(2);
  EXPECT_EQ(pace.seconds_a_step(), 2);
  EXPECT_EQ(pace.left(4, 10), 12);
  EXPECT_EQ(pace.left(10, 10), 0);
  static constexpr double pause = 0.03;
  const auto sleep = [] { std::this_thread::sleep_for(std::chrono::duration<double>(pause)); };
  const auto times = [&](int64_t step, int64_t steps) {
    return (pace.left(step, steps) - 2 * static_cast<double>(steps - step)) / pause;
  };
  pace.timed("sample", 4, sleep);
  EXPECT_GE(times(4, 10), 2);  // of steps 8 and 10
  EXPECT_LT(times(4, 10), 3);
  EXPECT_GE(times(4, 12), 2);  // of 8 and 12
  EXPECT_LT(times(4, 12), 3);
  pace.timed("sample", 0, sleep);  // behind the last step alone
  EXPECT_GE(times(4, 10), 1);
  EXPECT_LT(times(4, 10), 2);
}

}  // namespace
}  // namespace ebb::train
