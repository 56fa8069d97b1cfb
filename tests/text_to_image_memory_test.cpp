// What runs of TextToImage take of a device's memory: planned before, counted by the allocator, and
// kept within a limit.
#include <gtest/gtest.h>

#include "core/out_of_memory.h"
#include "pipeline/text_to_image.h"
#include "support/far_device.h"
#include "support/files.h"
#include "support/golden_component.h"
#include "support/golden_distance.h"
#include "support/small_checkpoint.h"

namespace ebb::testing {
namespace {

const nlohmann::json& golden(size_t run) {
  static const nlohmann::json runs = read_golden("text_to_image")["runs"];
  return runs.at(run);
}

// The first run of a network with that many text encoders.
const nlohmann::json& run_of(size_t encoders) {
  for (size_t i = 0;; ++i)
    if (golden(i)["texts"].size() == encoders) return golden(i);
}

struct Made {
  std::vector<float> pixels;
  RunMemory planned;
  RunReport report;
};

class TextToImageMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!text::has_builtin_clip_vocabulary()) GTEST_SKIP() << "built without a vocabulary";
  }
  static TextToImageRequest request(const nlohmann::json& run) {
    TextToImageRequest q = recorded_request(run);
    q.options.steps = 2;
    return q;
  }
  // On a device with memory of its own.
  static Made made(const nlohmann::json& run, const TextToImageRequest& q, int64_t limit = 0,
                   const Context& context = {.device = std::make_shared<FarDevice>()}) {
    return made(small_checkpoint(run), q, limit, context);
  }
  static Made made(CheckpointParts parts, const TextToImageRequest& q, int64_t limit = 0,
                   const Context& context = {.device = std::make_shared<FarDevice>()}) {
    TextToImage pipeline(std::move(parts), context,
                         {.keeps_encoders = limit == 0, .memory = limit});
    Made out;
    RunEvents events;
    events.planned = [&](const RunMemory& m) { out.planned = m; };
    events.picture = [&](Picture p) {
      if (!q.pixels) return;
      const auto v = p.pixels.span<float>();
      out.pixels.insert(out.pixels.end(), v.begin(), v.end());
    };
    out.report = pipeline.run(pipeline.resolve(q), events);
    EXPECT_EQ(out.report.planned_bytes, out.planned.peak());
    return out;
  }
  static void expect_true(const Made& m, const char* what) {
    const auto planned = static_cast<double>(m.report.planned_bytes),
               peak = static_cast<double>(m.report.peak_bytes);
    EXPECT_LE(peak, planned * 1.001) << what << "  " << text_of(m.planned);
    EXPECT_GE(peak, planned * 0.97) << what << "  " << text_of(m.planned);
  }
};

LoadedComponent golden_component(const char* name) {
  const GoldenComponent c(name);
  return {c.component, c.store()};
}

Tensor grey_picture(int64_t side) {
  Tensor out(DType::u8, {side, side, 3});
  std::ranges::fill(out.span<uint8_t>(), uint8_t{90});
  return out;
}

}  // namespace

TEST_F(TextToImageMemory, planned_peak__is_what_the_device_has_allocated) {
  for (const size_t encoders : {size_t{1}, size_t{2}}) {
    const nlohmann::json& run = run_of(encoders);
    TextToImageRequest q = request(run);
    expect_true(made(run, q), "one picture");
    const Made here = made(run, q, 0, open_context("cpu", {.threads = 2}));
    expect_true(here, "on the processor");
    const Made once = made(run, q, int64_t{1} << 40, open_context("cpu", {.threads = 2}));
    expect_true(once, "once on the processor");
    EXPECT_TRUE(once.planned.policy.denoiser_leaves);
    EXPECT_LT(once.planned.stages.back().bytes, here.planned.stages.back().bytes);
    EXPECT_EQ(once.pixels, here.pixels);
    q.count = 3, q.options.batch = 2, q.options.noise = "ebb";
    expect_true(made(run, q), "three in two batches");
    q.count = 1, q.options.batch = 0;
    q.prompt = "a [red:blue:0.5] (house:1.3)", q.syntax = text::PromptSyntax::a1111;
    expect_true(made(run, q), "a prompt that changes");
    q.init = InitImage{.picture = grey_picture(q.size.height), .strength = 0.9};
    q.size = {};
    expect_true(made(run, q), "from a picture");
    q.hires = Hires{.scale = 2, .upscaler = "lanczos"};
    expect_true(made(run, q), "two passes");
  }
}

// A network that enlarges the picture between two passes, with room for all and one by one.
TEST_F(TextToImageMemory, hires_network__is_planned) {
  const nlohmann::json& run = run_of(1);
  TextToImageRequest q = request(run);
  q.count = 2, q.options.batch = 2, q.options.noise = "ebb";
  q.hires = Hires{.scale = 1.5, .upscaler = "esrgan", .network = true};
  CheckpointParts parts = small_checkpoint(run);
  parts.hires_upscaler = golden_component("esrgan_x4");
  for (const bool pixels : {true, false}) {
    q.pixels = pixels;
    const Made all = made(parts, q);
    expect_true(all, "a network between two passes");
    const auto enlarging =
        std::ranges::find(all.planned.stages, std::string("enlarging"), &StageMemory::name);
    ASSERT_NE(enlarging, all.planned.stages.end());
    EXPECT_EQ(enlarging->bytes, all.planned.peak());
    bool alone = false, tiles = false;
    for (int64_t limit = all.planned.peak() - 1; !tiles;) {
      const Made m = made(parts, q, limit);
      expect_true(m, "with a limit");
      EXPECT_LE(m.report.peak_bytes, limit);
      alone = alone || m.planned.policy.one_by_one, tiles = m.planned.policy.upscaler_tile > 0;
      limit = m.planned.peak() - 1;
    }
    EXPECT_TRUE(alone);
  }
}

// Each in turn, with the run's other components and alone.
TEST_F(TextToImageMemory, preview_decoder__is_planned) {
  const nlohmann::json& run = run_of(1);
  TextToImageRequest q = request(run);
  const int64_t without = made(run, q).planned.peak();
  q.hires = Hires{.scale = 2, .upscaler = "latent"};
  int64_t limit = 0;
  for (const char* what : {"a small autoencoder", "with a limit"}) {
    TextToImage pipeline(small_checkpoint(run), {.device = std::make_shared<FarDevice>()},
                         {.keeps_encoders = limit == 0, .memory = limit});
    const ResolvedTextToImage r = pipeline.resolve(q);
    const Preview preview = pipeline.preview(r, golden_component("taesd"));
    Made m;
    RunEvents events;
    events.planned = [&](const RunMemory& p) { m.planned = p; };
    events.step = [&](const StepView& s) { EXPECT_EQ(preview(s.denoised()).shape()[3], 3); };
    m.report = pipeline.run(r, events);
    expect_true(m, what);
    EXPECT_GT(m.planned.peak(), limit == 0 ? without : 0);
    if (limit > 0) {
      EXPECT_LE(m.report.peak_bytes, limit);
    }
    limit = m.planned.peak() - 1;
  }
}

// Its map is found before the run.
TEST_F(TextToImageMemory, preview__takes_nothing_of_the_run) {
  const nlohmann::json& run = run_of(1);
  TextToImage pipeline(small_checkpoint(run), {.device = std::make_shared<FarDevice>()},
                       {.keeps_encoders = true});
  const ResolvedTextToImage r = pipeline.resolve(request(run));
  const Preview preview = pipeline.preview(r);
  int64_t shown = 0;
  RunEvents events;
  events.step = [&](const StepView& s) { shown += preview(s.denoised()).shape()[0]; };
  const RunReport report = pipeline.run(r, events);
  EXPECT_GT(shown, 0);
  EXPECT_LE(static_cast<double>(report.peak_bytes),
            static_cast<double>(report.planned_bytes) * 1.001);
}

// Each measure in turn: the limit is what the one before takes, less a little.
TEST_F(TextToImageMemory, limits__are_kept_and_pictures_are_the_same) {
  for (const size_t encoders : {size_t{1}, size_t{2}}) {
    const nlohmann::json& run = run_of(encoders);
    TextToImageRequest q = request(run);
    q.size = {384, 320};
    const Made all = made(run, q);
    int64_t limit = all.planned.peak() - 1;
    bool alone = false, apart = false, tiles = false;
    for (int i = 0; i < 12; ++i) {
      Made m;
      try {
        m = made(run, q, limit);
      } catch (const OutOfMemory& e) {
        EXPECT_EQ(std::string(e.what()).rfind("generate: out of memory: the run takes ", 0), 0u)
            << e.what();
        break;
      }
      EXPECT_LE(m.report.peak_bytes, limit);
      expect_true(m, "with a limit");
      const MemoryPolicy& p = m.planned.policy;
      if (p.decoder_tile == 0) {
        EXPECT_EQ(m.pixels, all.pixels) << text_of(m.planned);
      }
      alone = alone || p.one_by_one, apart = apart || !p.together,
      tiles = tiles || p.decoder_tile > 0;
      limit = m.planned.peak() - 1;
    }
    EXPECT_TRUE(alone);
    EXPECT_TRUE(apart || tiles);
  }
}

// Without --batch.
class FreeBatch : public TextToImageMemory {
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
  EXPECT_EQ(told, (std::vector<std::string>{"warning: out of memory while decoding: lets go of the "
                                            "other components and decodes again"}));
  told.clear(), sizes.clear();
  made(1, 2, 0, told, sizes);
  EXPECT_EQ(sizes, std::vector<int64_t>(8, 1));
  EXPECT_EQ(told, (std::vector<std::string>{"warning: out of memory with 1 picture at a time: goes "
                                            "on with one component at a time"}));
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

TEST_F(TextToImageMemory, runs_one_after_the_other__keep_within_a_limit) {
  const nlohmann::json& run = run_of(2);
  TextToImageRequest q = request(run);
  const int64_t all = made(run, q).planned.peak();
  TextToImage pipeline(small_checkpoint(run), {.device = std::make_shared<FarDevice>()},
                       {.memory = all * 3 / 4});
  for (int i = 0; i < 3; ++i) {
    if (i == 2) q.prompt = "something else";
    const RunReport report = pipeline.run(pipeline.resolve(q));
    EXPECT_LE(report.peak_bytes, all * 3 / 4);
    EXPECT_NEAR(static_cast<double>(report.peak_bytes), static_cast<double>(report.planned_bytes),
                0.03 * static_cast<double>(report.planned_bytes));
  }
}

}  // namespace ebb::testing
