// Text to image on several devices of one process: the same pictures as on one.
#include "pipeline/text_to_image_devices.h"

#include <gtest/gtest.h>

#include <map>
#include <mutex>
#include <utility>

#include "diffusion/solver/run.h"
#include "support/files.h"
#include "support/recorded_requests.h"

namespace ebb::testing::text_to_image_devices_test {
namespace {

class DevicesOfText : public RecordedRequests {
 protected:
  static TextToImageRequest request_of(int64_t count, int64_t batch) {
    TextToImageRequest q = request(run_of(1));
    q.size = {64, 64};
    q.count = count, q.options.batch = batch, q.options.noise = "ebb";
    return q;
  }
  struct Made {
    std::map<int64_t, std::vector<float>> pixels;  // by index
    std::vector<std::string> told;
    double share = 0;
    int planned = 0;
    int64_t previews = 0;
    RunReport report;
  };
  static Made run(const TextToImageRequest& q, size_t count, int64_t stop_after = 1000) {
    const CheckpointParts parts = small_checkpoint(run_of(1));
    std::vector<std::unique_ptr<TextToImage>> devices;
    for (size_t i = 0; i < count; ++i)
      devices.push_back(std::make_unique<TextToImage>(parts, open_context("cpu", {.threads = 1})));
    Made out;
    std::mutex calls;
    const auto alone = [&] {
      EXPECT_TRUE(calls.try_lock()) << "one call at a time";
      return std::unique_lock(calls, std::adopt_lock);
    };
    RunEvents events;
    events.progress = [&](const RunProgress& p) {
      const auto lock = alone();
      EXPECT_GE(p.of_run, out.share - 1e-9);
      out.share = p.of_run;
      return std::ssize(out.pixels) < stop_after;
    };
    events.picture = [&](const Picture& p) {
      const auto lock = alone();
      const auto v = p.pixels.span<float>();
      EXPECT_TRUE(out.pixels.try_emplace(p.index, v.begin(), v.end()).second) << p.index;
      EXPECT_EQ(p.batch_first, p.index / p.batch * p.batch);
    };
    events.tell = [&](const std::string& line) {
      const auto lock = alone();
      out.told.push_back(line);
    };
    events.planned = [&](const RunMemory&) { ++out.planned; };
    events.step = [&](const StepView&) { ++out.previews; };
    const ResolvedTextToImage r = divided(devices[0]->resolve(q), count);
    try {
      out.report = run_on(devices, r, events);
    } catch (const Cancelled&) {
      out.share = -1;
    }
    return out;
  }
};

}  // namespace

TEST_F(DevicesOfText, pictures__have_the_same_bits_as_on_one) {
  const TextToImageRequest q = request_of(5, 2);
  const Made one = run(q, 1);
  ASSERT_EQ(one.pixels.size(), 5U);
  for (const size_t devices : {2, 3}) {
    const Made made = run(q, devices);
    EXPECT_EQ(made.pixels, one.pixels) << devices;
    EXPECT_NEAR(made.share, 1, 1e-9);
    EXPECT_EQ(made.planned, 1) << "said once";
    EXPECT_GT(made.previews, 0);
    EXPECT_EQ(made.told, one.told);
    EXPECT_EQ(made.report.steps, one.report.steps);
    EXPECT_EQ(made.report.ran.batch, 2);
  }
}

TEST_F(DevicesOfText, open_batch__is_divided) {
  const Made two = run(request_of(4, 0), 2);
  EXPECT_EQ(two.report.ran.batch, 2);
  EXPECT_EQ(two.pixels, run(request_of(4, 2), 1).pixels);
}

// As where a device with less memory halves the batch of its first range.
TEST_F(DevicesOfText, range_that_batches_do_not_divide__counts_its_own_pictures_alone) {
  TextToImage device(small_checkpoint(run_of(1)), open_context("cpu", {.threads = 1}));
  const ResolvedTextToImage r = device.resolve(request_of(5, 2));
  double sampled = 0;
  std::vector<int64_t> made;
  RunEvents events;
  events.progress = [&](const RunProgress& p) {
    if (p.stage == Stage::sampling) sampled = std::max(sampled, p.of_stage);
    return true;
  };
  events.picture = [&](const Picture& p) { made.push_back(p.index); };
  ImageRange left{0, 3};
  device.run(r, events, [&](int64_t) { return std::exchange(left, {}); });
  EXPECT_EQ(made, (std::vector<int64_t>{0, 1, 2}));
  EXPECT_NEAR(sampled, 0.6, 1e-9);
}

TEST_F(DevicesOfText, stopped__keeps_what_is_made) {
  const Made some = run(request_of(12, 1), 2, 2);
  EXPECT_EQ(some.share, -1);
  EXPECT_GE(some.pixels.size(), 2U);
  EXPECT_LT(some.pixels.size(), 12U);
}

}  // namespace ebb::testing::text_to_image_devices_test
