// What a run tells of itself while it goes on.
#include "train/metrics.h"

#include <gtest/gtest.h>

#include "support/cpu.h"
#include "support/files.h"
#include "support/toy_run.h"

namespace ebb::train {
namespace {

using testing::cpu;
using testing::Folder;
using testing::metrics;
using testing::toy_config;
using testing::toy_job;

// As a progress line has it, behind the step.
std::string shown_loss(const std::vector<std::string>& lines, std::string_view step) {
  for (const std::string& l : lines)
    if (l.starts_with(step)) return l.substr(step.size(), l.find("  grad ") - step.size());
  return "";
}

TEST(progress, loss__is_that_of_the_last_steps_also_of_a_run_that_was_resumed) {
  const Folder folder;
  const auto lines_of = [&](TrainConfig c, int64_t steps) {
    std::vector<std::string> lines;
    c.schedule = "constant";
    c.steps = steps;
    TrainJob job = toy_job(c);
    job.hooks.log = [&](std::string_view line) { lines.emplace_back(line); };
    const TrainResult r = train(std::move(job), cpu());
    double sum = 0;
    const auto all = metrics(c.out);
    for (size_t i = all.size() - RecentLoss::window; i < all.size(); ++i)
      sum += all[i]["loss"].get<double>();
    EXPECT_DOUBLE_EQ(r.loss, sum / static_cast<double>(RecentLoss::window));
    return lines;
  };
  TrainConfig whole = toy_config(folder / "whole"), parts = toy_config(folder / "parts");
  const std::string loss = shown_loss(lines_of(whole, 80), "step 80/80");
  EXPECT_TRUE(loss.starts_with("  loss ") && loss.ends_with(" (mean of 50)")) << loss;
  lines_of(parts, 70);
  parts.resume = true;
  EXPECT_EQ(shown_loss(lines_of(parts, 80), "step 80/80"), loss);
}

TEST(progress, loss__of_few_steps_is_their_mean) {
  RecentLoss loss;
  EXPECT_EQ(loss.mean(), 0);
  loss.add(3);
  loss.add(1);
  EXPECT_EQ(loss.mean(), 2);
  Progress p{.now = {.step = 2}, .loss = loss};
  EXPECT_EQ(progress_line(p).find("step 2  loss 2.0000 (mean of 2)  grad"), 0u);
  for (size_t i = 0; i < RecentLoss::window; ++i) loss.add(7);
  EXPECT_EQ(loss.mean(), 7);
}

TEST(progress, durations__read_naturally) {
  EXPECT_EQ(duration_text(0), "0s");
  EXPECT_EQ(duration_text(59.6), "1m00s");
  EXPECT_EQ(duration_text(3720), "1h02m");
  EXPECT_EQ(duration_text(2 * 86400 + 3 * 3600), "2d03h");
}

}  // namespace
}  // namespace ebb::train
