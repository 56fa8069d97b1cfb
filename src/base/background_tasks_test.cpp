#include "base/background_tasks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>

namespace ebb {
namespace {

TEST(background_tasks, all_have_run_behind_finish) {
  std::atomic<int> sum = 0;
  BackgroundTasks tasks;
  for (int i = 1; i <= 100; ++i) tasks.add([&sum, i] { sum += i; });
  tasks.finish();
  EXPECT_EQ(sum, 5050);
  tasks.add([&sum] { sum = 0; });  // more may follow
  tasks.finish();
  EXPECT_EQ(sum, 0);
}

TEST(background_tasks, the_first_error_is_thrown_and_the_others_still_run) {
  std::atomic<int> ran = 0;
  BackgroundTasks tasks;
  tasks.add([] { throw std::runtime_error("no space"); });
  tasks.add([&ran] { ++ran; });
  EXPECT_THROW(tasks.finish(), std::runtime_error);
  EXPECT_EQ(ran, 1);
  tasks.finish();  // thrown once
}

}  // namespace
}  // namespace ebb
