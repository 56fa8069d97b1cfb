#include "base/background_tasks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <stdexcept>
#include <thread>

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
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "tasks run one by one here";
  std::atomic<int> ran = 0;
  std::promise<void> both_added;  // else the second add() may find the first task failed already
  BackgroundTasks tasks;
  tasks.add([added = both_added.get_future().share()] {
    added.wait();
    throw std::runtime_error("no space");
  });
  tasks.add([&ran] { ++ran; });
  both_added.set_value();
  EXPECT_THROW(tasks.finish(), std::runtime_error);
  EXPECT_EQ(ran, 1);
  tasks.finish();  // thrown once
}

TEST(background_tasks, an_error_is_thrown_by_the_next_call) {
  BackgroundTasks tasks;
  tasks.add([] { throw std::runtime_error("no space"); });
  const auto add_until_it_throws = [&] {
    for (;;) tasks.add([] {});
  };
  EXPECT_THROW(add_until_it_throws(), std::runtime_error);
  tasks.finish();
}

}  // namespace
}  // namespace ebb
