#include "train/batches_ahead.h"

#include <gtest/gtest.h>

#include <numeric>

#include "backends.h"
#include "support/far_device.h"
#include "support/files.h"

namespace ebb::train {
namespace {

using testing::expect_error;

constexpr int64_t elements = 10'000, at_most = 40'192;  // bytes of them, aligned

// Batches of which the large input holds number, number + 1, ...
NamedTensors numbered(int64_t number) {
  Tensor images(DType::f32, {elements});
  const auto all = images.span<float>();
  std::iota(all.begin(), all.end(), static_cast<float>(number));
  return {{"images", images}, {"number", scalar_tensor(number)}, {"unused", images.clone()}};
}

NextBatch numbered_batches() {
  return [number = int64_t{0}]() mutable { return numbered(number++); };
}

class BatchesAheadOn : public test::OnEachBackend {
 protected:
  NextBatch begin(NextBatch next, int64_t bytes = at_most, int64_t batches = 2) {
    return batches_ahead(std::move(next), context_,
                         {.inputs = {"images"}, .bytes = bytes, .batches = batches});
  }
  std::vector<float> fetched(const Tensor& t) {
    Tensor host(t.type());
    context_.device->copy(t, host);
    return {host.span<float>().begin(), host.span<float>().end()};
  }
};

TEST_P(BatchesAheadOn, large_inputs__are_in_the_devices_memory_and_as_they_were) {
  const NextBatch next = begin(numbered_batches());
  std::set<const void*> places;
  for (int64_t n = 0; n < 50; ++n) {
    const NamedTensors batch = next();
    const Tensor& images = batch.at("images");
    EXPECT_EQ(images.buffer()->on_host(), context_.device->on_host());
    places.insert(images.raw());
    const std::vector<float> got = fetched(images);
    for (int64_t i = 0; i < elements; ++i)
      ASSERT_EQ(got[static_cast<size_t>(i)], static_cast<float>(n + i));
    EXPECT_EQ(batch.at("number").span<int64_t>()[0], n);
    EXPECT_TRUE(batch.at("unused").buffer()->on_host());
  }
  EXPECT_LE(places.size(), 2u);
}

TEST_P(BatchesAheadOn, a_batch_that_is_held__keeps_its_values) {
  const NextBatch next = begin(numbered_batches(), at_most, 3);
  const NamedTensors first = next();
  for (int i = 0; i < 10; ++i) next();
  EXPECT_EQ(fetched(first.at("images"))[0], 0);
}

TEST_P(BatchesAheadOn, a_fault__comes_in_place_of_its_batch) {
  const NextBatch next = begin([number = int64_t{0}]() mutable {
    require(number < 3, "no more pictures");
    return numbered(number++);
  });
  for (int i = 0; i < 3; ++i) next();
  expect_error([&] { next(); }, "no more pictures");
}

TEST_P(BatchesAheadOn, a_batch_of_more_bytes__is_refused) {
  const NextBatch next = begin(numbered_batches(), 39'936);
  expect_error([&] { next(); }, "train: a batch is larger than its graphs' inputs");
}

TEST_P(BatchesAheadOn, more_batches_held_than_there_is_memory_for__are_refused) {
  const NextBatch next = begin(numbered_batches());
  const NamedTensors first = next(), second = next();
  expect_error([&] { next(); }, "train: more batches are in use than there is memory for (1)");
}

INSTANTIATE_TEST_SUITE_P(cpu, BatchesAheadOn, ::testing::ValuesIn(test::only("cpu")));
INSTANTIATE_TEST_SUITE_P(cuda, BatchesAheadOn, ::testing::ValuesIn(test::only("cuda")));

TrainJob job_of(int64_t images) {
  TrainJob job;
  job.batches_on_any_thread = true;
  job.loss.source(Source::Kind::input, "images", {DType::f32, {images}});
  job.loss.source(Source::Kind::input, "labels", {DType::i64, {8}});
  job.loss.source(Source::Kind::param, "weights", {DType::f32, {elements}});
  return job;
}

TEST(BatchesAheadOf, a_job__takes_memory_for_the_largest_of_its_shapes) {
  TrainJob job = job_of(2'000);
  Graph larger;
  larger.source(Source::Kind::input, "images", {DType::f32, {elements}});
  job.other_losses.push_back(std::move(larger));
  const BatchesAhead ahead = batches_ahead_of(job, testing::FarDevice());
  EXPECT_EQ(ahead.inputs, (std::set<std::string, std::less<>>{"images"}));
  EXPECT_EQ(ahead.bytes, at_most);
  EXPECT_EQ(ahead.device_bytes(), 2 * at_most);
}

// The sum of the largest shape of each input would be more.
TEST(BatchesAheadOf, an_input_that_is_small_in_one_shape__is_not_copied_there) {
  TrainJob job = job_of(1'250);
  job.loss.source(Source::Kind::input, "depth", {DType::f32, {1'000}});
  const BatchesAhead ahead = batches_ahead_of(job, testing::FarDevice());
  EXPECT_EQ(ahead.inputs, (std::set<std::string, std::less<>>{"images"}));
  Graph other;
  other.source(Source::Kind::input, "images", {DType::f32, {1'000}});
  other.source(Source::Kind::input, "depth", {DType::f32, {1'250}});
  job.other_losses.push_back(std::move(other));
  const auto device = std::make_shared<testing::FarDevice>();
  const NextBatch next = batches_ahead(
      [] {
        return NamedTensors{{"images", Tensor(DType::f32, {1'000})},
                            {"depth", Tensor(DType::f32, {1'250})}};
      },
      {.device = device}, batches_ahead_of(job, *device));
  const NamedTensors batch = next();
  EXPECT_TRUE(batch.at("images").buffer()->on_host());
  EXPECT_FALSE(batch.at("depth").buffer()->on_host());
}

TEST(BatchesAheadOf, small_inputs_and_batches_of_one_thread__are_not_copied_ahead) {
  EXPECT_EQ(batches_ahead_of(job_of(1'000), testing::FarDevice()).bytes, 0);
  TrainJob job = job_of(elements);
  job.batches_on_any_thread = false;
  EXPECT_EQ(batches_ahead_of(job, testing::FarDevice()).bytes, 0);
}

}  // namespace
}  // namespace ebb::train
