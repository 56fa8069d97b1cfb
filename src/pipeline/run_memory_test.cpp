#include "pipeline/run_memory.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/out_of_memory.h"

namespace ebb {
namespace {

PlanNeeds needs(const void* store, std::map<std::string, int64_t> weights, int64_t arena,
                int64_t working = 0) {
  return {.own = 1, .weights = {store, std::move(weights), working}, .arena = arena};
}

// A choice whose stages take 60 (less 30 when encoders leave), 80 (less 50 by branches) and 70
// (less 60 in tiles).
MemoryChoice choice() {
  return {.first = {},
          .guided = true,
          .decoder_tiles = {64, 32},
          .upscaler_tiles = {},
          .stages = [](const MemoryPolicy& p) {
            const int64_t text = p.encoders_leave ? 0 : 30;
            return std::vector<StageMemory>{
                {"text", 30},
                {"sampling", text + (p.together ? 80 : 30)},
                {"decoding", text + (p.decoder_tile == 0 ? 70 : p.decoder_tile)}};
          }};
}

}  // namespace

TEST(device_model, weights_of_two_plans__count_once_and_leave_with_the_last) {
  const int store = 0;
  const PlanNeeds a = needs(&store, {{"w", 100}, {"v", 10}}, 50, 70);
  const PlanNeeds b = needs(&store, {{"w", 100}}, 5, 70);
  DeviceModel model(1000);
  model.begin("first");
  model.take(a);  // prepares with 70 before it has its 50
  model.begin("both");
  model.take(b);
  model.begin("second");
  model.leave(a);
  model.begin("alone");
  model.leave(b);
  model.begin("none");
  const auto stages = std::move(model).stages();
  ASSERT_EQ(stages.size(), 5u);
  EXPECT_EQ(stages[0].bytes, 1000 + 1 + 110 + 70);
  EXPECT_EQ(stages[1].bytes, 1000 + 2 + 110 + 50 + 5);
  EXPECT_EQ(stages[3].bytes, 1000 + 1 + 100 + 5);
  EXPECT_EQ(stages[4].bytes, 1000);
}

TEST(choose_memory, measures__come_in_order_and_only_where_they_help) {
  const auto at = [](int64_t limit) { return choose_memory(choice(), limit, "--memory"); };
  EXPECT_FALSE(at(110).policy.encoders_leave);
  EXPECT_TRUE(at(109).policy.encoders_leave);
  EXPECT_TRUE(at(80).policy.together);
  EXPECT_FALSE(at(79).policy.together);
  EXPECT_FALSE(at(79).policy.one_by_one);  // makes nothing smaller
  EXPECT_EQ(at(70).policy.decoder_tile, 0);
  EXPECT_EQ(at(69).policy.decoder_tile, 64);
  EXPECT_EQ(at(32).policy.decoder_tile, 32);
  EXPECT_EQ(at(32).peak(), 32);
}

TEST(largest_batch, of_those_that_fit__is_found_in_few_tries) {
  for (const int64_t limit : {100, 119, 120, 121, 500, 1359})
    for (const int64_t bent : {0, 3}) {
      int tries = 0;
      const auto bytes = [&](int64_t n) {
        ++tries;
        return 80 + 20 * n + bent * (n % 4);
      };
      const int64_t n = largest_batch(64, limit, bytes);
      EXPECT_TRUE(n == 1 || bytes(n) <= limit) << limit << ' ' << n;
      EXPECT_GT(bytes(n + 1), limit) << n;
      EXPECT_LE(tries, 8 + 2) << limit;
    }
  EXPECT_EQ(largest_batch(2, 100, [](int64_t) { return 0; }), 1);
}

// Another stage is the largest up to some number of pictures: the peak is flat, then steep.
TEST(largest_batch, of_a_peak_with_a_bend__is_found_in_few_tries) {
  for (const int64_t flat : {1700, 4000, 7900})
    for (const int64_t limit : {4100, 5000, 8000}) {
      int tries = 0;
      const auto bytes = [&](int64_t n) {
        ++tries;
        return std::max(flat, 1700 + 100 * n);
      };
      if (bytes(1) > limit || bytes(64) <= limit) continue;
      const int64_t n = largest_batch(64, limit, bytes);
      EXPECT_LE(tries, 10 + 2) << flat << ' ' << limit;
      EXPECT_EQ(n, (limit - 1700) / 100) << flat << ' ' << limit;
    }
}

TEST(choose_memory, what_does_not_fit__is_an_error_with_the_numbers) {
  try {
    choose_memory(choice(), 20, "--memory");
    FAIL();
  } catch (const OutOfMemory& e) {
    const std::string text = e.what();
    for (const char* part :
         {"out of memory", "text 0.01 MB", "--memory is 0.00 MB", "decoded in tiles of 32 latents"})
      EXPECT_NE(text.find(part), std::string::npos) << text;
  }
}

TEST(choose_memory, advice__is_for_the_largest_stage) {
  const auto advice = [](const StageMemory& text, const StageMemory& sampling, int64_t batch,
                         std::vector<std::pair<std::string, int64_t>> dtypes) -> std::string {
    const MemoryChoice choice{.first = {},
                              .batch = batch,
                              .decoder_tiles = {},
                              .upscaler_tiles = {},
                              .stages =
                                  [&](const MemoryPolicy&) {
                                    return std::vector<StageMemory>{text, sampling};
                                  },
                              .dtypes = [&](int64_t) { return dtypes; }};
    try {
      choose_memory(choice, 5'000'000, "--memory");
    } catch (const OutOfMemory& e) {
      const std::string all = e.what();
      return all.substr(all.find("most is"));
    }
    return "";
  };
  constexpr int64_t mb = 1'000'000;
  EXPECT_EQ(
      advice({"text", 9 * mb, 8 * mb}, {"sampling", 7 * mb, 2 * mb}, 1,
             {{"bf16", 5 * mb}, {"f16", 6 * mb}}),
      "most is for text, of which 8.00 MB for weights; less by --dtype bf16 (then 5.00 MB) or "
      "f16 (then 6.00 MB)");
  EXPECT_EQ(
      advice({"text", 9 * mb, 8 * mb}, {"sampling", 7 * mb, 2 * mb}, 1, {}),
      "most is for text, of which 8.00 MB for weights; no flag makes that less, but a smaller "
      "model does");
  EXPECT_EQ(advice({"text", 3 * mb, 2 * mb}, {"sampling", 7 * mb, 2 * mb}, 2,
                   {{"bf16", 7 * mb}, {"f16", 5 * mb}}),
            "most is for sampling, of which 2.00 MB for weights; less by a smaller --size or "
            "--batch, or by --dtype f16 (then 5.00 MB)");
  EXPECT_EQ(advice({"text", 3 * mb, 2 * mb}, {"sampling", 7 * mb, 2 * mb}, 1, {}),
            "most is for sampling, of which 2.00 MB for weights; less by a smaller --size");
  EXPECT_EQ(advice({"text", 3 * mb, 2 * mb}, {"sampling", 7 * mb, 6 * mb}, 2, {}),
            "most is for sampling, of which 6.00 MB for weights; no flag makes that less, but a "
            "smaller model does");
}

// The number that is told is enough where it is given as the limit.
TEST(run_memory, what_is_needed__is_rounded_up) {
  const auto text = [](int64_t bytes) {
    return text_of({.policy = {}, .stages = {{"sampling", bytes, 0}}});
  };
  EXPECT_EQ(text(8'270'588), "8.28 MB: sampling 8.28 MB");
  EXPECT_EQ(text(8'280'000), "8.28 MB: sampling 8.28 MB");
  EXPECT_EQ(text(1'001'000'000), "1.01 GB: sampling 1.01 GB");
  EXPECT_EQ(text(999'999'999), "1.00 GB: sampling 1.00 GB");
}

}  // namespace ebb
