// Validation within the training loop, on a toy.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "support/cpu.h"
#include "support/far_device.h"
#include "support/files.h"
#include "support/toy_run.h"
#include "train/loop.h"

namespace ebb::train {
namespace {

using testing::checkpoint_bytes;
using testing::Folder;
using testing::metrics;
using testing::toy_batch;
using testing::toy_config;
using testing::toy_job;

using testing::cpu;

// A validation set of two batches, which no training step sees.
Validation toy_validation() {
  return {.loss = testing::toy_loss(8),
          .batches = 2,
          .batch = [](int64_t i) { return toy_batch(1000 + i, 8); },
          .every = 5};
}

std::map<int64_t, double> validation_losses(const std::string& folder) {
  std::map<int64_t, double> out;
  for (const auto& line : metrics(folder))
    if (line.contains("validation/loss")) out[line["step"]] = line["validation/loss"];
  return out;
}

TEST(train, validation__leaves_the_bits_of_training_and_survives_a_break) {
  const Folder folder;
  const auto device = std::make_shared<testing::FarDevice>();
  const auto run = [&](const std::string& name, bool validate, const Context& context,
                       int64_t steps, bool resume) {
    TrainJob job = toy_job(toy_config(folder / name));
    job.config.resume = resume;
    if (validate) job.validation = toy_validation();
    std::string said;
    job.hooks.log = [&](std::string_view line) { said += str(line, '\n'); };
    job.hooks.stop = [&, done = int64_t{0}]() mutable { return ++done == steps; };
    train(std::move(job), context);
    return said;
  };
  run("plain", false, cpu(), 20, false);
  const std::string said = run("whole", true, cpu(), 20, false);
  EXPECT_NE(said.find("  validation "), std::string::npos) << said;
  run("broken", true, cpu(), 12, false);
  run("broken", true, cpu(), 20, true);
  run("far", true, {.device = device}, 20, false);
  for (const char* name : {"whole", "broken", "far"})
    EXPECT_EQ(checkpoint_bytes(folder / name, 20), checkpoint_bytes(folder / "plain", 20)) << name;
  const auto whole = validation_losses(folder / "whole"),
             broken = validation_losses(folder / "broken");
  std::vector<int64_t> steps;
  for (const auto& [step, loss] : whole) {
    steps.push_back(step);
    EXPECT_EQ(broken.at(step), loss) << step;
  }
  EXPECT_EQ(steps, (std::vector<int64_t>{1, 5, 10, 15, 20}));
  EXPECT_LT(whole.at(20), whole.at(1));
  EXPECT_EQ(validation_losses(folder / "far"), whole);
}

TEST(train, validation_that_memory_is_too_small_for__is_left_out_with_a_line) {
  const Folder folder;
  TrainJob job = toy_job(toy_config(folder.path()));
  job.validation = toy_validation();
  job.validation->loss = testing::toy_loss(100000);
  const auto device = std::make_shared<testing::FarDevice>(1000000);
  std::string said;
  job.hooks.log = [&](std::string_view line) { said += str(line, '\n'); };
  EXPECT_EQ(train(std::move(job), {.device = device}).step, 20);
  EXPECT_NE(said.find("validation: none, plan: out of memory"), std::string::npos) << said;
}

TEST(train, validation__is_shown_once_and_with_its_step_on_a_later_line) {
  const Folder folder;
  TrainJob job = toy_job(toy_config(folder.path()));
  job.config.log_every = 1;
  job.batches = [](int64_t) -> NextBatch {
    return [micro_batch = int64_t{0}]() mutable {
      if (micro_batch == 6 || micro_batch == 7)  // slow: steps 7 and 8 get lines of their own
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
      return toy_batch(micro_batch++, 8);
    };
  };
  job.validation = toy_validation();
  std::string said;
  job.hooks.log = [&](std::string_view line) { said += str(line, '\n'); };
  train(std::move(job), cpu());
  const auto shown = [&](int64_t step) {  // "" if there is none
    const size_t begin = said.find(str("step ", step, "/20  ")), end = said.find('\n', begin);
    EXPECT_NE(begin, said.npos) << said;
    const size_t at = said.find("  validation ", begin);
    return at < end ? said.substr(at, said.find("  grad", at) - at) : "";
  };
  EXPECT_EQ(shown(1).find("(step"), said.npos) << said;
  EXPECT_NE(shown(1), "") << said;
  EXPECT_NE(shown(7).find("(step 5)"), said.npos) << said;
  EXPECT_EQ(shown(8), "") << said;
  EXPECT_NE(shown(20), "") << said;
  EXPECT_EQ(shown(20).find("(step"), said.npos) << said;
}

}  // namespace
}  // namespace ebb::train
