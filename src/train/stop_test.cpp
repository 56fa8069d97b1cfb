// What signals do while a loop minds them.
#include "train/stop.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <string>
#include <thread>

namespace ebb::train {
namespace {

// They may run where SIGINT is ignored.
class stop_signals : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) std::signal(signal, SIG_DFL);
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
};

TEST_F(stop_signals, first_one__is_recorded_and_acknowledged_at_once) {
  ::testing::internal::CaptureStderr();
  {
    const StopSignals signals("stops");
    EXPECT_EQ(signals.requested(), 0);
    std::raise(SIGTERM);
    std::raise(SIGINT);  // the same request
    EXPECT_EQ(signals.requested(), SIGTERM);
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "stops\n");
  const StopSignals next("");
  EXPECT_EQ(next.requested(), 0);
  std::raise(SIGHUP);
  EXPECT_EQ(next.requested(), SIGHUP);
}

TEST_F(stop_signals, one_a_second_later__ends_the_process) {
  EXPECT_EXIT(
      {
        const StopSignals signals("stops");
        std::raise(SIGINT);
        std::this_thread::sleep_for(std::chrono::milliseconds(1010));
        std::raise(SIGINT);
      },
      ::testing::KilledBySignal(SIGINT), "stops");
}

TEST_F(stop_signals, where_there_is_nothing_to_save__end_the_process_with_a_sentence) {
  EXPECT_EXIT(
      {
        const EndOnSignal preparing("nothing was written");
        std::raise(SIGTERM);
      },
      ::testing::ExitedWithCode(128 + SIGTERM), "nothing was written\n");
  { const EndOnSignal preparing("nothing was written"); }
  EXPECT_EXIT(std::raise(SIGTERM), ::testing::KilledBySignal(SIGTERM), "");
}

TEST_F(stop_signals, with_json__end_the_process_with_an_object) {
  EXPECT_EXIT(
      {
        dup2(STDERR_FILENO, STDOUT_FILENO);  // which is looked at
        const EndOnSignal preparing("nothing was written", true);
        std::raise(SIGTERM);
      },
      ::testing::ExitedWithCode(128 + SIGTERM),
      "nothing was written\n.\"interrupted\":true,\"signal\":15.\n");
}

TEST_F(stop_signals, ignored_ones__stay_so) {
  const auto before = std::signal(SIGINT, SIG_IGN);
  {
    const StopSignals signals("stops");
    std::raise(SIGINT);
    EXPECT_EQ(signals.requested(), 0);
  }
  {
    const EndOnSignal preparing("ends");
    std::raise(SIGINT);
  }
  EXPECT_EQ(std::signal(SIGINT, before), SIG_IGN);
}

// What handlers write below the stack pointer of kernels that use it for other things is other
// people's memory.
TEST_F(stop_signals, threads_that_compute__take_none_beside_a_signal_thread) {
  const auto blocked = [] {
    sigset_t now;
    pthread_sigmask(SIG_BLOCK, nullptr, &now);
    return sigismember(&now, SIGINT) + sigismember(&now, SIGTERM) + sigismember(&now, SIGHUP);
  };
  const StopSignals signals("stops");
  {
    const SignalThread takes;
    int of_another = 0;
    std::thread([&] { of_another = blocked(); }).join();
    EXPECT_EQ(of_another, 3);
    EXPECT_EQ(blocked(), 3);
    kill(getpid(), SIGTERM);
    for (int i = 0; i < 1000 && signals.requested() == 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_EQ(signals.requested(), SIGTERM);
  }
  EXPECT_EQ(blocked(), 0);
}

TEST_F(stop_signals, without_a_handler__end_a_process_with_a_signal_thread) {
  EXPECT_EXIT(
      {
        const SignalThread takes;
        kill(getpid(), SIGHUP);
        std::this_thread::sleep_for(std::chrono::seconds(60));
      },
      ::testing::KilledBySignal(SIGHUP), "");
}

TEST_F(stop_signals, long_lines__are_cut) {
  ::testing::internal::CaptureStderr();
  const StopSignals signals(std::string(1000, 'x'));
  std::raise(SIGINT);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_LE(said.size(), 160u);
  EXPECT_TRUE(said.ends_with("x\n"));
}

}  // namespace
}  // namespace ebb::train
