// What runs tell of their progress.
#include "pipeline/run_progress.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace ebb {
namespace {

void wait(int milliseconds) {
  std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
}

// Text is done at once, and says nothing of the steps; the first of these compiles.
TEST(run_progress, time_that_is_left__is_told_when_the_stage_with_most_work_was_measured) {
  std::vector<double> left;
  RunMeter meter({1, 0, 10, 2}, [&](const RunProgress& p) {
    left.push_back(p.seconds_left);
    return true;
  });
  meter.show(Stage::text, 0);
  meter.show(Stage::text, 1);
  meter.show(Stage::sampling, 0);
  wait(300);
  meter.show(Stage::sampling, 0.1);
  for (const double seconds : left) EXPECT_LT(seconds, 0);
  wait(50);
  meter.show(Stage::sampling, 0.2);
  // 0.8 of sampling and a fifth of it for decoding, at 50 ms a tenth or, on a loaded machine, more
  EXPECT_GE(left.back(), 0.5 * 0.999);
  EXPECT_LT(left.back(), 2);
  meter.show(Stage::sampling, 1);
  meter.show(Stage::decoding, 1);
  EXPECT_EQ(left.back(), 0);
}

// Of several pictures a step is a small share, and measured all the same.
TEST(run_progress, shares_of_a_small_stage__do_not_hide_the_time) {
  double left = -1;
  RunMeter meter({1, 0, 1000, 0}, [&](const RunProgress& p) {
    left = p.seconds_left;
    return true;
  });
  for (int i = 0; i <= 10; ++i) {
    meter.show(Stage::sampling, i * 0.001);
    wait(1);
  }
  EXPECT_GT(left, 0);
}

// A thousand pictures of twenty steps.
TEST(run_progress, time_of_a_long_run__is_told_after_a_second_of_its_steps) {
  double left = -1;
  RunMeter meter({1, 0, 1000, 0}, [&](const RunProgress& p) {
    left = p.seconds_left;
    return true;
  });
  const auto step = [&](int i) { meter.show(Stage::sampling, i / 20000.0); };
  step(1);
  wait(500);
  step(2);
  EXPECT_LT(left, 0) << "half a second";
  wait(600);
  step(3);
  EXPECT_GT(left, 9000);
}

}  // namespace
}  // namespace ebb
