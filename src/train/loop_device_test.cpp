// The training loop on a device with memory of its own, where batches are copied ahead.
#include <gtest/gtest.h>

#include <cmath>

#include "backends.h"
#include "support/cpu.h"
#include "support/far_device.h"
#include "support/files.h"
#include "support/toy_run.h"
#include "train/loop.h"

namespace ebb::train {
namespace {

using testing::checkpoint_bytes;
using testing::Folder;
using testing::toy_batch;
using testing::toy_config;
using testing::toy_job;

constexpr int64_t large = 512;  // images: larger than a small input

TrainConfig large_config(const std::string& out, int64_t accumulation) {
  TrainConfig c = toy_config(out);
  c.batch = large * accumulation;
  c.accumulation = accumulation;
  c.steps = 6;
  c.checkpoint_every = 3;
  return c;
}

TrainJob job_ahead(const TrainConfig& c) {
  TrainJob job = toy_job(c);
  job.batches_on_any_thread = true;
  return job;
}

// A pixel of a micro-batch is `bad`.
std::function<NextBatch(int64_t)> batches_with(int64_t wrong, float bad) {
  return [wrong, bad](int64_t first) -> NextBatch {
    return [number = first, wrong, bad]() mutable {
      NamedTensors b = toy_batch(number, large);
      if (number++ == wrong) b["images"].span<float>()[3] = bad;
      return b;
    };
  };
}

Context far() { return {.device = std::make_shared<testing::FarDevice>()}; }

TEST(train_on_a_device, batches_ahead__change_no_bit) {
  for (const int64_t accumulation : {1, 3}) {
    const Folder folder;
    train(toy_job(large_config(folder / "a", accumulation)), testing::cpu());
    train(job_ahead(large_config(folder / "b", accumulation)), far());
    for (const int64_t step : {3, 6})
      EXPECT_EQ(checkpoint_bytes(folder / "a", step), checkpoint_bytes(folder / "b", step));
  }
}

TEST(train_on_a_device, a_run_that_goes_on__comes_to_the_same_bits) {
  const Folder folder;
  train(job_ahead(large_config(folder / "whole", 2)), far());
  TrainConfig c = large_config(folder / "parts", 2);
  TrainJob job = job_ahead(c);
  job.hooks.stop = [asked = 0]() mutable { return ++asked == 4; };
  EXPECT_EQ(train(std::move(job), far()).why, TrainResult::Stop::hook);
  c.resume = true;
  train(job_ahead(c), far());
  EXPECT_EQ(checkpoint_bytes(folder / "whole", 6), checkpoint_bytes(folder / "parts", 6));
}

TEST(train_on_a_device, a_batch_that_cannot_be_made__ends_the_run_at_its_step) {
  const Folder folder;
  TrainJob job = job_ahead(large_config(folder / "run", 1));
  job.batches = [](int64_t first) -> NextBatch {
    return [number = first]() mutable {
      require(number < 4, "no more pictures");
      return toy_batch(number++, large);
    };
  };
  testing::expect_error([&] { train(std::move(job), far()); }, "no more pictures");
  EXPECT_EQ(testing::metrics(folder / "run").size(), 3u);  // as of the last checkpoint
}

// Step 4 ends the run if one of its micro-batches has a pixel that is no number.
void expect_named(const Context& context, int64_t accumulation, int64_t micro_batch) {
  const Folder folder;
  TrainJob job = job_ahead(large_config(folder / "run", accumulation));
  job.batches = batches_with(3 * accumulation + micro_batch, std::nanf(""));
  const std::string e = testing::error_of([&] { train(std::move(job), context); });
  EXPECT_NE(e.find("(step 4: loss"), std::string::npos) << e;
  EXPECT_NE(e.find("first: input 'images'  f32[512,2,2,3] element 3"), std::string::npos) << e;
  EXPECT_NE(e.find("model-00000003.safetensors"), std::string::npos) << e;
}
void expect_any_named(const Context& context) {
  for (const auto& [accumulation, micro_batch] : {std::pair{1, 0}, {3, 0}, {3, 1}, {3, 2}})
    expect_named(context, accumulation, micro_batch);
}

class NotFiniteOn : public test::OnEachBackend {};

TEST_P(NotFiniteOn, any_micro_batch__is_named) { expect_any_named(context_); }

INSTANTIATE_TEST_SUITE_P(cpu, NotFiniteOn, ::testing::ValuesIn(test::only("cpu")));
INSTANTIATE_TEST_SUITE_P(cuda, NotFiniteOn, ::testing::ValuesIn(test::only("cuda")));

TEST(train_on_a_device, numbers_that_are_not_finite__are_found_in_batches_ahead) {
  expect_any_named(far());
}

}  // namespace
}  // namespace ebb::train
