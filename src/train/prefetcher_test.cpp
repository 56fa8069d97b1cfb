#include "train/prefetcher.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

#include "support/files.h"

namespace ebb::train {
namespace {

using testing::expect_error;
using NumberPrefetcher = Prefetcher<int64_t>;

void pause() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

TEST(prefetcher, values__come_in_order_from_any_number_of_threads) {
  for (const int64_t threads : {1, 3})
    for (const int64_t depth : {1, 2, 5}) {
      NumberPrefetcher all([](int64_t n, const std::stop_token&) { return std::optional(n * n); },
                           {.first = 4, .threads = threads, .depth = depth});
      for (int64_t n = 4; n < 20; ++n) EXPECT_EQ(all.next(), n * n);
    }
}

TEST(prefetcher, options_that_cannot_be__are_refused) {
  const NumberPrefetcher::Make make = [](int64_t n, const std::stop_token&) {
    return std::optional(n);
  };
  expect_error([&] { NumberPrefetcher(make, {.depth = 0}); }, "depth (0) must be positive");
  expect_error([&] { NumberPrefetcher(make, {.threads = 0}); }, "threads (0)");
  expect_error([&] { NumberPrefetcher(make, {.first = -1}); }, "first (-1) must not be negative");
}

TEST(prefetcher, value_that_is_not_made__is_an_error_in_its_place) {
  NumberPrefetcher all(
      [](int64_t n, const std::stop_token&) {
        return n < 2 ? std::optional(n) : std::optional<int64_t>();
      },
      {});
  EXPECT_EQ(all.next(), 0);
  EXPECT_EQ(all.next(), 1);
  for (int i = 0; i < 2; ++i) expect_error([&] { all.next(); }, "prefetch: no value is made (2)");
}

TEST(prefetcher, end_while_values_are_made__waits_for_them) {
  std::atomic<int> running = 0, ended = 0;
  {
    NumberPrefetcher all(
        [&](int64_t, const std::stop_token& stop) {
          ++running;
          while (!stop.stop_requested()) pause();
          ++ended;
          return std::optional<int64_t>();
        },
        {.threads = 3, .depth = 4});
    while (running < 3) pause();
  }
  EXPECT_EQ(ended, 3);
}

TEST(prefetcher, end_after_an_error__waits_for_what_is_still_made) {
  std::atomic<bool> began = false;
  std::atomic<int> ended = 0;
  {
    NumberPrefetcher all(
        [&](int64_t n, const std::stop_token& stop) {
          require(n != 0, "numbers: not this one (", n, ")");
          began = true;
          while (!stop.stop_requested()) pause();
          ++ended;
          return std::optional(n);
        },
        {.threads = 2, .depth = 3});
    expect_error([&] { all.next(); }, "numbers: not this one (0)");
    while (!began) pause();
  }
  EXPECT_GE(ended, 1);
}

}  // namespace
}  // namespace ebb::train
