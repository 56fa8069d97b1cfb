// What runs of TextToImage take of a device's memory: planned before, counted by the allocator, and
// kept within a limit.
#include <gtest/gtest.h>

#include <sstream>

#include "core/out_of_memory.h"
#include "pipeline/control.h"
#include "pipeline/text_to_image.h"
#include "support/far_device.h"
#include "support/files.h"
#include "support/golden_component.h"
#include "support/golden_distance.h"
#include "support/recorded_requests.h"
#include "support/small_checkpoint.h"

namespace ebb::testing::text_to_image_memory_test {
namespace {

struct Made {
  std::vector<float> pixels;
  RunMemory planned;
  RunReport report;
};

class TextToImageMemory : public RecordedRequests {
 protected:
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
    EXPECT_NE(std::ranges::find(all.planned.stages, std::string("decoding"), &StageMemory::name),
              all.planned.stages.end())
        << "between the passes";
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

// Networks of control that take part in some steps: the plans of the parts of the run have memory
// one after the other, and all keep their weights unless one component is there at a time.
TEST_F(TextToImageMemory, control_networks_of_a_part_of_the_run__are_planned) {
  const nlohmann::json run = read_golden("control_runs")["runs"][0];
  const LoadedComponent network = component("control_net", run["control"]);
  const auto made_with = [&](const std::vector<ControlInput>& controls, int64_t limit) {
    TextToImageRequest q = request(run);
    q.options.steps = 4, q.pixels = false;
    q.controls = controls;
    CheckpointParts parts = small_checkpoint(run);
    parts.denoiser =
        with_controls(parts.denoiser, std::vector<LoadedComponent>(controls.size(), network));
    return made(std::move(parts), q, limit);
  };
  const auto of = [&](double start, double end) {
    return ControlInput{
        .image = grey_picture(run["height"]), .strength = 1, .start = start, .end = end};
  };
  const Made whole = made_with({of(0, 1)}, 0), half = made_with({of(0, 0.5)}, 0);
  expect_true(half, "to the middle");
  EXPECT_LT(half.planned.peak(), whole.planned.peak() * 1.05) << "a plan has memory at a time";
  expect_true(made_with({of(0.25, 0.75)}, 0), "in the middle");
  const Made both = made_with({of(0, 0.5), of(0.5, 1)}, 0);
  expect_true(both, "one after the other");
  Made alone = both;
  while (!alone.planned.policy.one_by_one) {
    alone = made_with({of(0, 0.5), of(0.5, 1)}, alone.planned.peak() - 1);
    expect_true(alone, "with a limit");
  }
}

// An IP-Adapter with a mask of another size than the picture, in two passes of two pictures.
TEST_F(TextToImageMemory, image_adapter_with_a_mask__is_planned) {
  const nlohmann::json run = read_golden("image_adapter_regions")["runs"][0];
  CheckpointParts parts = small_checkpoint(run);
  parts.denoiser = with_controls(parts.denoiser, {component("ip_adapter", run["adapters"][0])});
  parts.image_encoder = component("clip_vision", run["encoder"]);
  TextToImageRequest q = request(run);
  q.options.steps = 2, q.count = 2, q.options.batch = 2, q.options.noise = "ebb";
  q.hires = Hires{.scale = 1.5, .upscaler = "latent"};
  q.controls.push_back({.image = grey_picture(50), .blocks = "mid"});
  const Made plain = made(parts, q);
  expect_true(plain, "an image adapter");
  Tensor mask(DType::u8, {13, 21, 1});
  std::ranges::fill(mask.span<uint8_t>(), uint8_t{0});
  q.controls[0].mask = mask;
  const Made none = made(parts, q);
  expect_true(none, "with a mask");
  EXPECT_NE(none.pixels, plain.pixels);
  q.controls[0].strength = 0;
  EXPECT_EQ(made(parts, q).pixels, none.pixels);
}

// Less than plans hold from the beginning.
TEST_F(TextToImageMemory, limit_that_nothing_keeps__is_refused_with_the_stages) {
  const nlohmann::json& run = run_of(1);
  const auto refused = [&](int64_t limit, const char* dtype = "f32") -> std::string {
    TextToImageRequest q = request(run);
    q.options.dtype = dtype;
    try {
      made(run, q, limit);
    } catch (const OutOfMemory& e) {
      return e.what();
    }
    return "";
  };
  for (const int64_t limit : {1, 1000, 20'000}) {
    const std::string error = refused(limit);
    EXPECT_EQ(error.find("generate: out of memory: the run takes "), 0u) << error;
    for (const char* part : {": text ", ", sampling ", ", decoding ", ", and --memory is ",
                             ": most is for ", "--dtype bf16 (then "})
      EXPECT_NE(error.find(part), error.npos) << error;
    // what is promised of a dtype is what the run takes in it, to the last digit, which is rounded
    // up
    for (const std::string dtype : {"bf16", "f16"}) {
      const std::string begin = str(" ", dtype, " (then "), takes = "the run takes ";
      const std::string in_it = refused(limit, dtype.c_str());
      const auto behind = [](const std::string& text, const std::string& words) {
        const size_t at = text.find(words) + words.size();
        return text.substr(at, text.find_first_of(":)", at) - at);
      };
      EXPECT_EQ(behind(error, begin), behind(in_it, takes)) << error << '\n' << in_it;
    }
  }
}

// A smaller batch and a smaller size are named only if they fit, with what they take then.
TEST_F(TextToImageMemory, advice__is_planned_for_batch_and_size) {
  const nlohmann::json& run = run_of(1);
  TextToImageRequest q = request(run);
  q.size = {512, 256}, q.options.noise = "ebb", q.pixels = false;
  const auto of = [&](int64_t batch, ImageSize size, int64_t limit) -> std::string {
    q.count = q.options.batch = batch, q.size = size;
    try {
      return text_of(made(run, q, limit).planned);
    } catch (const OutOfMemory& e) {
      return e.what();
    }
  };
  const int64_t limit = made(run, q, int64_t{1} << 40).planned.peak();
  const std::string error = of(4, {512, 256}, limit);
  // the flag's value, and what it promises
  const auto said = [&](const std::string& flag) {
    const size_t at = error.find(flag + ' ');
    EXPECT_NE(at, error.npos) << error;
    if (at == error.npos) return std::pair<std::string, std::string>();
    std::istringstream words(error.substr(at + flag.size()));
    std::string value, then, number, unit;
    words >> value >> then >> number >> unit;
    return std::pair{value, number + ' ' + unit.substr(0, 2) + ':'};
  };
  const auto [batch, with_batch] = said("--batch");
  const auto [size, with_size] = said("--size");
  ASSERT_FALSE(batch.empty() || size.empty());
  EXPECT_EQ(of(std::stoll(batch), {512, 256}, limit).find(with_batch), 0u) << error;
  const ImageSize smaller{.height = std::stoll(size.substr(size.find('x') + 1)),
                          .width = std::stoll(size)};
  EXPECT_LT(smaller.height, 512);
  EXPECT_EQ(of(4, smaller, limit).find(with_size), 0u) << error;
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

// As of a GPU with a context: an entry of its own, in each stage, in the limit and in the peak.
TEST_F(TextToImageMemory, driver__is_an_entry_and_counts_in_the_limit) {
  const nlohmann::json& run = run_of(2);
  const TextToImageRequest q = request(run);
  const Made without = made(run, q);
  const auto device = std::make_shared<FarDevice>();
  device->driver = {.first = 50'000'000, .now = 50'000'000};
  const Made with = made(run, q, 0, {.device = device});
  expect_true(with, "with a driver");
  EXPECT_EQ(with.planned.peak(), without.planned.peak() + device->driver.first);
  EXPECT_NE(text_of(with.planned).find(" MB: driver 50.00 MB, text "), std::string::npos)
      << text_of(with.planned);
  EXPECT_EQ(text_of(without.planned).find("driver"), std::string::npos);
  const int64_t limit = with.planned.peak() - 1;
  const Made less = made(run, q, limit, {.device = device});
  EXPECT_LE(less.report.peak_bytes, limit);
  EXPECT_NE(text_of(less.planned).find('('), std::string::npos) << "takes a measure";
  EXPECT_THROW(made(run, q, device->driver.first, {.device = device}), OutOfMemory);
}

TEST_F(TextToImageMemory, runs_one_after_the_other__keep_within_a_limit) {
  const nlohmann::json& run = run_of(2);
  TextToImageRequest q = request(run);
  const int64_t all = made(run, q).planned.peak();
  TextToImage pipeline(small_checkpoint(run), {.device = std::make_shared<FarDevice>()},
                       {.memory = all * 3 / 4});
  for (int i = 0; i < 3; ++i) {
    if (i == 2) q.prompt = "something else";
    RunEvents measured;
    measured.planned = [](const RunMemory&) {};
    const RunReport report = pipeline.run(pipeline.resolve(q), measured);
    EXPECT_LE(report.peak_bytes, all * 3 / 4);
    EXPECT_GT(report.peak_bytes, 0);
    if (i == 1) {  // the prompt's states are kept: no encoder runs
      EXPECT_LE(report.peak_bytes, report.planned_bytes);
      continue;
    }
    EXPECT_NEAR(static_cast<double>(report.peak_bytes), static_cast<double>(report.planned_bytes),
                0.03 * static_cast<double>(report.planned_bytes));
  }
}

}  // namespace ebb::testing::text_to_image_memory_test
