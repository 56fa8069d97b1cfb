// Several devices of one process: who makes which images, the same bits as on one, and how all end.
#include "pipeline/on_devices.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "diffusion/solver/run.h"
#include "pipeline/evaluate.h"
#include "pipeline/pipeline_group.h"
#include "support/far_device.h"
#include "support/files.h"
#include "support/hashed_weights.h"

namespace ebb {
namespace {

using testing::expect_error;

std::vector<Context> processors(size_t count) {
  std::vector<Context> out;
  for (size_t i = 0; i < count; ++i) out.push_back(open_context("cpu", {.threads = 1}));
  return out;
}

LoadedModel tiny() {
  NamedModel m = find_model("tiny");
  parse_fields(m.config.fields(),
               "{image_size=16 in_channels=3 classes=4 channels=[8,16] embedding=16}");
  LoadedModel out{m.model, m.config, usual_diffusion(*m.model, m.config), {}};
  WeightStore::Weights weights;
  for (const nn::Weight& w : weights_of(*m.model, m.config))
    weights[w.name] = stored_tensor(testing::hashed_weight(w));
  out.weights = std::make_shared<WeightStore>(std::move(weights));
  return out;
}

std::vector<int64_t> taken(ImageQueue& q, size_t device, int64_t most) {
  const ImageRange r = q.next(device, most);
  return {r.first, r.end};
}

TEST(image_queue, each_device_begins_with_its_own_batch__and_takes_what_is_left) {
  ImageQueue q(11, 2, 3);
  EXPECT_EQ(taken(q, 1, 2), (std::vector<int64_t>{2, 4}));
  EXPECT_EQ(taken(q, 1, 2), (std::vector<int64_t>{6, 8}));
  EXPECT_EQ(taken(q, 0, 1), (std::vector<int64_t>{0, 1})) << "memory is short there";
  EXPECT_EQ(taken(q, 0, 1), (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(taken(q, 2, 2), (std::vector<int64_t>{4, 6}));
  EXPECT_EQ(taken(q, 2, 2), (std::vector<int64_t>{8, 10}));
  EXPECT_EQ(taken(q, 1, 2), (std::vector<int64_t>{10, 11}));
  for (size_t d = 0; d < 3; ++d) EXPECT_TRUE(q.next(d, 2).empty());
}

TEST(image_queue, fewer_images_than_devices) {
  ImageQueue q(3, 2, 4);
  EXPECT_TRUE(q.next(3, 2).empty());
  EXPECT_EQ(taken(q, 1, 2), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(taken(q, 0, 2), (std::vector<int64_t>{0, 2}));
  EXPECT_TRUE(q.next(1, 2).empty());
}

TEST(on_devices, batches_are_divided) {
  EXPECT_EQ(divided_batch(16, 64, 4), 4);
  EXPECT_EQ(divided_batch(10, 64, 4), 3);  // 3, 3, 3, 1
  EXPECT_EQ(divided_batch(1000, 64, 4), 63) << "as equal as can be";
  EXPECT_EQ(divided_batch(1, 1, 8), 1);
  EXPECT_EQ(used_devices(4, 4, 8), 1U);
  EXPECT_EQ(used_devices(9, 4, 8), 3U);
  EXPECT_EQ(used_devices(1000, 4, 8), 8U);
}

TEST(on_devices, error_of_one__ends_all_and_names_the_device) {
  const std::vector<Context> devices = processors(3);
  std::atomic<int> ended = 0;
  const auto work = [&](size_t d, const std::stop_token& stop) {
    if (d == 1) fail("a kernel failed");
    while (!stop.stop_requested()) std::this_thread::yield();
    ++ended;
    throw Cancelled("sample: stopped");
  };
  expect_error([&] { on_devices(devices, work); },
               "device 1 of 3 (" + devices[1].device->description() + "): a kernel failed");
  EXPECT_EQ(ended, 2);
}

TEST(on_devices, stop_that_was_asked_for__is_no_error) {
  const std::vector<Context> devices = processors(2);
  EXPECT_THROW(on_devices(devices, [](size_t, const std::stop_token&) { throw Cancelled("stop"); }),
               Cancelled);
}

TEST(on_devices, single_device__works_on_the_callers_thread) {
  const std::thread::id here = std::this_thread::get_id();
  on_devices(processors(1), [&](size_t, const std::stop_token& stop) {
    EXPECT_EQ(std::this_thread::get_id(), here);
    EXPECT_FALSE(stop.stop_requested());
  });
}

// Of 7 images in batches of 2, the last of which is filled up.
TEST(pipeline_group, images__have_the_same_bits_as_on_one_device) {
  const LoadedModel model = tiny();
  const GenerateOptions options{
      .steps = 2, .sampler = "euler_ancestral", .seed = 3, .guidance = 2, .batch = 2};
  const ResolvedRequest r = resolve(model, {.classes = {0, 1, 2, 3, 0, 1, 2}}, options);
  PipelineGroup alone(model, processors(1));
  const Generated expected = alone.generate(r);
  for (const size_t devices : {2, 3}) {
    PipelineGroup group(tiny(), processors(devices));
    double last = 0;
    const Generated g = group.generate(r, [&](double share) {
      EXPECT_GE(share, last - 1e-9) << "of all devices";
      last = share;
      return true;
    });
    EXPECT_EQ(last, 1);
    EXPECT_EQ(g.steps, 2);
    EXPECT_EQ(g.evaluations, expected.evaluations);
    const auto a = g.images.span<float>(), b = expected.images.span<float>();
    EXPECT_TRUE(std::ranges::equal(a, b)) << devices;
  }
}

// The pictures' settings say one dtype.
TEST(pipeline_group, auto_dtype__is_that_of_the_first_device_on_all) {
  const auto fast = std::make_shared<testing::FarDevice>();
  fast->fast = DType::bf16;
  const std::vector<Context> devices = {{.device = fast},
                                        {.device = std::make_shared<testing::FarDevice>()}};
  const ResolvedRequest r =
      resolve(tiny(), {.classes = {0, 1}}, {.steps = 2, .sampler = "euler", .seed = 3, .batch = 1});
  const Generated one = PipelineGroup(tiny(), {devices[0]}).generate(r);
  const Generated both = PipelineGroup(tiny(), devices).generate(r);
  EXPECT_EQ(both.ran.dtype, "bf16");
  EXPECT_TRUE(std::ranges::equal(both.images.span<float>(), one.images.span<float>()));
}

TEST(pipeline_group, device_without_images__compiles_nothing) {
  const LoadedModel model = tiny();
  const std::vector<Context> devices = processors(2);
  Pipeline a(model, devices[0]), b(model, devices[1]);
  Pipeline* const both[] = {&a, &b};
  const ResolvedRequest r =
      resolve(model, {.classes = {0}}, {.steps = 2, .sampler = "euler", .batch = 1});
  Pipeline::generate_on(both, r);
  EXPECT_EQ(a.statistics().compiled, 1);
  EXPECT_EQ(b.statistics().compiled, 0);
}

TEST(pipeline_group, evaluation__uses_the_devices_that_have_a_batch) {
  const LoadedModel model = tiny();
  EXPECT_EQ(used_devices(model, {.n = 5, .generate = {.batch = 2}}, 8), 3U);
  EXPECT_EQ(used_devices(model, {.n = 64, .generate = {}}, 4), 4U);
  EXPECT_EQ(used_devices(model, {.n = 0, .generate = {}}, 4), 1U) << "an error that comes later";
}

TEST(pipeline_group, progress_that_returns_false__stops_all) {
  const LoadedModel model = tiny();
  const ResolvedRequest r = resolve(model, {.classes = std::vector<int64_t>(64, 0)},
                                    {.steps = 50, .sampler = "euler", .batch = 1});
  PipelineGroup group(model, processors(2));
  EXPECT_THROW(group.generate(r, [](double share) { return share < 0.02; }), Cancelled);
}

TEST(pipeline_group, open_batch__is_divided) {
  ResolvedRequest r = resolve(tiny(), {.classes = std::vector<int64_t>(10, 0)}, {});
  EXPECT_EQ(r.batch, 10);
  divide(r, 1);
  EXPECT_EQ(r.batch, 10) << "as ever";
  divide(r, 4);
  EXPECT_EQ(r.batch, 3);
  EXPECT_EQ(r.options.batch, 3);
}

}  // namespace
}  // namespace ebb
