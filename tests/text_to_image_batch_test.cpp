// How many pictures TextToImage makes at a time, and what it does where memory runs out in a run.
#include <gtest/gtest.h>

#include <cstring>

#include "core/out_of_memory.h"
#include "pipeline/text_to_image.h"
#include "support/far_device.h"
#include "support/recorded_requests.h"

namespace ebb::testing::text_to_image_batch_test {
namespace {

// The processor, with as much memory as a test says.
class NearDevice final : public Device {
 public:
  std::string_view backend() const override { return "cpu"; }
  std::string description() const override { return "a near device"; }
  bool fast_in(DType dtype) const override { return dtype == DType::f32; }
  int64_t free_memory() const override { return free; }
  std::shared_ptr<Buffer> allocate(int64_t bytes) override { return host_buffer(bytes); }
  void copy(const Tensor& from, const Tensor& to) override {
    std::memcpy(to.raw(), from.raw(), static_cast<size_t>(from.bytes()));
  }
  void synchronize() override {}
  int64_t free = int64_t{1} << 40;
};

// Without --batch.
class FreeBatch : public RecordedRequests {
 protected:
  static TextToImageRequest request_of(int64_t count) {
    TextToImageRequest q = request(run_of(1));
    q.size = {192, 192};
    q.pixels = false;
    q.count = count, q.options.batch = 0, q.options.guidance = 1, q.options.noise = "ebb";
    return q;
  }
  static int64_t peak_with(TextToImageRequest q, int64_t batch) {
    q.options.batch = batch;
    return run(q, 0).planned.peak();
  }
  struct Batches {
    std::vector<int64_t> sizes, firsts;
    std::vector<std::vector<float>> latents;
    std::vector<std::string> told;
    RunMemory planned;
    RunReport report;
  };
  // `later`: the limit that stands from the plan on.
  static Batches run(const TextToImageRequest& q, int64_t limit, int64_t later = 0) {
    const Context context{.device = std::make_shared<FarDevice>()};
    CheckpointParts parts = small_checkpoint(run_of(1));
    if (q.refine) parts.refiner = parts.denoiser, parts.refiner_encoders = parts.text_encoders;
    TextToImage pipeline(std::move(parts), context, {.memory = limit});
    Batches out;
    RunEvents events;
    events.planned = [&](const RunMemory& m) {
      out.planned = m;
      if (later > 0) context.memory->set_limit(later);
    };
    events.tell = [&](const std::string& line) { out.told.push_back(line); };
    events.picture = [&](const Picture& p) {
      EXPECT_EQ(p.index, std::ssize(out.sizes));
      out.sizes.push_back(p.batch), out.firsts.push_back(p.batch_first);
      const auto v = p.latents.span<float>();
      out.latents.emplace_back(v.begin(), v.end());
    };
    out.report = pipeline.run(pipeline.resolve(q), events);
    return out;
  }
};

}  // namespace

TEST_F(FreeBatch, of_a_limit__is_the_largest_that_fits_and_all_are_made) {
  const TextToImageRequest q = request_of(4);
  EXPECT_EQ(run(q, peak_with(q, 4)).sizes, (std::vector<int64_t>{4, 4, 4, 4}));
  const int64_t limit = peak_with(q, 2);
  ASSERT_LT(peak_with(q, 1), limit);
  ASSERT_LT(limit, peak_with(q, 4));
  const Batches two = run(q, limit);
  EXPECT_EQ(two.sizes, (std::vector<int64_t>{2, 2, 2, 2}));
  EXPECT_EQ(two.firsts, (std::vector<int64_t>{0, 0, 2, 2}));
  EXPECT_EQ(two.told,
            (std::vector<std::string>{"generate: memory is short: makes 2 pictures at a time"}));
  EXPECT_LE(two.report.peak_bytes, limit);
  EXPECT_EQ(two.report.ran.batch, 2);
  TextToImageRequest said = q;
  said.options.batch = 2;
  EXPECT_EQ(run(said, 0).latents, two.latents);
  EXPECT_EQ(run(q, limit - 1).sizes, (std::vector<int64_t>{1, 1, 1, 1}));
  EXPECT_THROW(run(said, limit / 8), OutOfMemory);
}

// Of five pictures of which four fit, three and two cost less than four and one: a batch is filled
// up.
TEST_F(FreeBatch, batches__are_as_equal_as_can_be) {
  const TextToImageRequest q = request_of(5);
  const int64_t limit = peak_with(q, 4);
  EXPECT_EQ(run(q, limit).sizes, (std::vector<int64_t>{3, 3, 3, 3, 3}));
}

TEST_F(FreeBatch, memory_that_is_missing_in_the_end__halves_it) {
  const TextToImageRequest q = request_of(4);
  const Batches halved = run(q, peak_with(q, 4), peak_with(q, 2));
  EXPECT_EQ(halved.sizes, (std::vector<int64_t>{2, 2, 2, 2}));
  EXPECT_EQ(halved.told, (std::vector<std::string>{
                             "warning: out of memory with 4 pictures at a time: goes on with 2"}));
  TextToImageRequest said = q;
  said.options.batch = 2;
  EXPECT_EQ(run(said, 0).latents, halved.latents);
  // what is said is kept as long as other measures help
  said.options.batch = 4;
  const Batches kept = run(said, peak_with(q, 4), peak_with(q, 2));
  EXPECT_EQ(kept.sizes, (std::vector<int64_t>{4, 4, 4, 4}));
  EXPECT_EQ(kept.told,
            (std::vector<std::string>{"warning: out of memory with 4 pictures at a time: goes on "
                                      "with one component at a time"}));
  EXPECT_EQ(kept.latents, run(said, 0).latents);
  EXPECT_THROW(run(said, peak_with(q, 4), peak_with(q, 4) / 8), OutOfMemory);
}

// Pictures of several requests likewise: they have the bits of batches of that size.
TEST_F(FreeBatch, joined_requests__are_halved_where_memory_is_missing_in_the_end) {
  struct Joined {
    std::vector<std::pair<int64_t, std::vector<float>>> latents;  // with the size of the batch
    std::vector<std::string> told;
    RunReport report;
  };
  // So many requests, `most` at a time; `later` as above.
  const auto joined = [&](int64_t count, int64_t most, int64_t later) {
    const Context context{.device = std::make_shared<FarDevice>()};
    TextToImage pipeline(small_checkpoint(run_of(1)), context);
    std::vector<ResolvedTextToImage> requests;
    std::vector<JoinedPicture> left;
    for (int64_t i = 0; i < count; ++i) {
      TextToImageRequest q = request_of(1);
      q.options.seed = DrawableSeed(static_cast<uint64_t>(i)), q.prompt = str("a fox ", i);
      requests.push_back(pipeline.resolve(q));
      left.push_back({requests.size() - 1, 0});
    }
    Joined out;
    JoinedEvents events;
    events.tell = [&](size_t i, const std::string& line) {
      if (i == 1) out.told.push_back(line);
    };
    events.picture = [&](const Picture& p) {
      EXPECT_EQ(p.request, out.latents.size());
      const auto v = p.latents.span<float>();
      out.latents.emplace_back(p.batch, std::vector<float>(v.begin(), v.end()));
    };
    out.report = pipeline.run_joined(requests, events, [&](int64_t fit) {
      EXPECT_EQ(fit, later > 0 && left.empty() ? count / 2 : count);
      if (later > 0) context.memory->set_limit(later);
      const auto n = std::min(most, std::ssize(left));
      const std::vector<JoinedPicture> now(left.begin(), left.begin() + n);
      left.erase(left.begin(), left.begin() + n);
      return now;
    });
    return out;
  };
  const Joined pairs = joined(4, 2, 0);
  const Joined halved = joined(4, 4, joined(2, 2, 0).report.planned_bytes);
  ASSERT_EQ(halved.latents.size(), 4u);
  EXPECT_EQ(halved.latents, pairs.latents);
  EXPECT_EQ(halved.latents[3].first, 2);
  EXPECT_EQ(pairs.told, std::vector<std::string>());
  EXPECT_EQ(halved.told, (std::vector<std::string>{
                             "warning: out of memory with 4 pictures at a time: goes on with 2"}));
}

// As a GPU may be in any call, when others take its memory. A run that has begun is begun again,
// and what was handed out stays.
TEST_F(FreeBatch, memory_that_runs_out_within_a_run__loses_no_picture) {
  TextToImageRequest q = request_of(8);
  q.pixels = true;
  const auto device = std::make_shared<FarDevice>();
  TextToImage pipeline(small_checkpoint(run_of(1)), {.device = device}, {});
  ResolvedTextToImage r = pipeline.resolve(q);
  const auto made = [&](int64_t batch, int64_t short_step, int64_t short_decoding,
                        std::vector<std::string>& told, std::vector<int64_t>& sizes) {
    ResolvedTextToImage now = r;
    now.set_batch(batch);
    now.request.options.batch = 0;
    std::vector<std::vector<float>> out;
    RunEvents events;
    events.step = [&](const StepView&) {
      if (--short_step == 0) device->short_of = "far: out of memory in a step";
    };
    events.progress = [&](const RunProgress& p) {
      if (p.stage == Stage::decoding && --short_decoding == 0)
        device->short_of = "far: out of memory in the decoder";
      return true;
    };
    events.tell = [&](const std::string& line) { told.push_back(line); };
    events.picture = [&](const Picture& p) {
      EXPECT_EQ(p.index, std::ssize(sizes));
      sizes.push_back(p.batch);
      const auto v = p.pixels.span<float>();
      out.emplace_back(v.begin(), v.end());
    };
    pipeline.run(now, events);
    return out;
  };
  std::vector<std::string> told;
  std::vector<int64_t> sizes;
  const auto four = made(4, 0, 0, told, sizes);
  ASSERT_EQ(four.size(), 8u);
  EXPECT_TRUE(told.empty());
  sizes.clear();
  // in the second batch's first step
  const auto halved = made(4, q.options.steps + 1, 0, told, sizes);
  EXPECT_EQ(sizes, (std::vector<int64_t>{4, 4, 4, 4, 2, 2, 2, 2}));
  EXPECT_EQ(told, (std::vector<std::string>{
                      "warning: out of memory with 4 pictures at a time: goes on with 2"}));
  ASSERT_EQ(halved.size(), four.size());
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(halved[i], four[i]) << i;
  for (size_t i = 4; i < 8; ++i) {
    double worst = 0;
    for (size_t k = 0; k < four[i].size(); ++k)
      worst = std::max(worst, std::abs(double{halved[i][k]} - double{four[i][k]}));
    EXPECT_LT(worst, 1e-2) << i;
  }
  told.clear(), sizes.clear();
  EXPECT_EQ(made(4, 0, 3, told, sizes), four);
  EXPECT_EQ(told, (std::vector<std::string>{"warning: out of memory while decoding: goes on with "
                                            "one component at a time"}));
  told.clear(), sizes.clear();
  made(1, 2, 0, told, sizes);
  EXPECT_EQ(sizes, std::vector<int64_t>(8, 1));
  EXPECT_EQ(told, (std::vector<std::string>{"warning: out of memory with 1 picture at a time: goes "
                                            "on with one component at a time"}));
}

// What helped once is kept to: said once, and the denoiser leaves before the pictures after that.
TEST_F(FreeBatch, memory_that_runs_out_in_every_decoding__is_said_once) {
  TextToImageRequest q = request_of(4);
  q.pixels = true, q.options.batch = 1;
  const auto device = std::make_shared<FarDevice>();
  const Context context{.device = device};
  TextToImage pipeline(small_checkpoint(run_of(1)), context, {});
  std::vector<std::string> told;
  std::vector<int64_t> held;  // when a picture's decoding begins
  Stage before = Stage::text;
  RunEvents events;
  events.progress = [&](const RunProgress& p) {
    const bool begins = p.stage == Stage::decoding && before == Stage::sampling;
    before = p.stage;
    if (!begins) return true;
    held.push_back(context.memory->used());
    if (held.size() > 1) device->short_of = "far: out of memory in the decoder";
    return true;
  };
  events.tell = [&](const std::string& line) { told.push_back(line); };
  int64_t pictures = 0;
  events.picture = [&](const Picture&) { ++pictures; };
  pipeline.run(pipeline.resolve(q), events);
  EXPECT_EQ(pictures, 4);
  EXPECT_EQ(told, (std::vector<std::string>{"warning: out of memory while decoding: goes on with "
                                            "one component at a time"}));
  ASSERT_EQ(held.size(), 4u);
  EXPECT_LT(held[2], held[0] / 2);
  EXPECT_LT(held[3], held[0] / 2);
}

TEST_F(FreeBatch, memory_of_the_host_that_is_missing_in_the_end__halves_it) {
  const auto device = std::make_shared<NearDevice>();
  TextToImage pipeline(small_checkpoint(run_of(1)), {.device = device}, {});
  std::vector<std::string> told;
  std::vector<int64_t> sizes;
  RunEvents events;
  events.planned = [&](const RunMemory& m) {
    const auto sampling = std::ranges::find(m.stages, std::string("sampling"), &StageMemory::name);
    device->free = sampling->bytes * 4 / 5;
  };
  events.tell = [&](const std::string& line) { told.push_back(line); };
  events.picture = [&](const Picture& p) { sizes.push_back(p.batch); };
  pipeline.run(pipeline.resolve(request_of(4)), events);
  EXPECT_EQ(sizes, (std::vector<int64_t>{2, 2, 2, 2}));
  EXPECT_EQ(told, (std::vector<std::string>{
                      "warning: out of memory with 4 pictures at a time: goes on with 2"}));
}

// There a larger batch is hardly faster, and what is stopped within one is lost.
TEST_F(FreeBatch, on_a_processor__is_small) {
  TextToImage pipeline(small_checkpoint(run_of(1)), {.device = std::make_shared<NearDevice>()}, {});
  TextToImageRequest q = request_of(9);
  q.options.steps = 1;
  std::vector<int64_t> sizes;
  RunEvents events;
  events.picture = [&](const Picture& p) { sizes.push_back(p.batch); };
  pipeline.run(pipeline.resolve(q), events);
  EXPECT_EQ(sizes, std::vector<int64_t>(9, 3));
  sizes.clear();
  q.options.batch = 9;
  pipeline.run(pipeline.resolve(q), events);
  EXPECT_EQ(sizes, std::vector<int64_t>(9, 9));
}

// A refiner that takes over within a run, as in A1111, and one that makes its own.
TEST_F(FreeBatch, with_a_refiner__is_that_of_both_networks) {
  for (const char* dialect : {"a1111", "ebb"}) {
    TextToImageRequest q = request_of(4);
    q.options.dialect = dialect, q.options.sampler = "euler", q.options.schedule = "normal";
    q.options.schedule_options.clear();
    q.options.steps = 4, q.refine = Refine{.share = 0.5};
    const int64_t limit = peak_with(q, 2);
    ASSERT_LT(limit, peak_with(q, 4));
    const Batches two = run(q, limit), halved = run(q, peak_with(q, 4), limit);
    EXPECT_EQ(two.sizes, (std::vector<int64_t>{2, 2, 2, 2}))
        << dialect << ' ' << limit << ' ' << text_of(two.planned);
    EXPECT_EQ(two.sizes, halved.sizes) << dialect;
    EXPECT_LE(two.report.peak_bytes, limit) << dialect;
    TextToImageRequest said = q;
    said.options.batch = 2;
    EXPECT_EQ(run(said, 0).latents, two.latents) << dialect;
    EXPECT_EQ(halved.latents, two.latents) << dialect;
  }
}

}  // namespace ebb::testing::text_to_image_batch_test
