// TextToImage: requests on a loaded checkpoint, one after the other.
#include "pipeline/text_to_image.h"

#include <gtest/gtest.h>

#include "diffusion/solver/run.h"
#include "pipeline/run_work.h"
#include "support/files.h"
#include "support/golden_distance.h"
#include "support/small_checkpoint.h"

namespace ebb::testing::text_to_image_test {
namespace {

const nlohmann::json& golden() {
  static const nlohmann::json runs = read_golden("text_to_image")["runs"];
  return runs[0];
}

class TextToImageOf : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!text::has_builtin_clip_vocabulary()) GTEST_SKIP() << "built without a vocabulary";
  }
  static TextToImageRequest request() { return recorded_request(golden()); }
  std::vector<Picture> pictures(const TextToImageRequest& q) {
    std::vector<Picture> out;
    RunEvents events;
    events.picture = [&](Picture p) { out.push_back(std::move(p)); };
    pipeline_.run(pipeline_.resolve(q), events);
    return out;
  }
  Context context_ = open_context("cpu", {.threads = 2});
  TextToImage pipeline_{small_checkpoint(golden()), context_};
};

std::vector<float> numbers(const Tensor& t) {
  return {t.span<float>().begin(), t.span<float>().end()};
}

}  // namespace

TEST_F(TextToImageOf, request__ends_at_the_references_picture_and_so_does_its_repetition) {
  for (int i = 0; i < 2; ++i) {
    const auto made = pictures(request());
    ASSERT_EQ(made.size(), 1u);
    EXPECT_LT(distance("latents", made[0].latents.span<float>(), golden()["latents"]), 1e-3);
    EXPECT_LT(distance("pixels", made[0].pixels.span<float>(), golden()["pixels"]), 1e-3);
  }
}

// On processors, f16 is what is kept, not what is computed in.
TEST_F(TextToImageOf, run_in_f16__errs_less_than_one_in_bf16_and_says_where_it_is_slow) {
  const auto f32 = numbers(pictures(request()).at(0).latents);
  std::map<std::string, double> errors;
  for (const char* dtype : {"bf16", "f16"}) {
    TextToImageRequest q = request();
    q.options.dtype = dtype;
    std::vector<std::string> told;
    Tensor latents;
    const RunReport report = pipeline_.run(
        pipeline_.resolve(q), {.picture = [&](const Picture& p) { latents = p.latents; },
                               .tell = [&](const std::string& text) { told.push_back(text); }});
    EXPECT_EQ(report.ran.dtype, dtype);
    const bool slow = !context_.device->fast_in(parse_dtype(dtype));
    EXPECT_EQ(told.size(), slow ? 1u : 0u);
    const std::string text = told.empty() ? "" : told[0];
    EXPECT_EQ(text.find(str("warning: dtype ", dtype, ": this device is not fast")) == 0, slow);
    double error = 0, norm = 0;
    for (size_t i = 0; i < f32.size(); ++i)
      error += std::pow(latents.span<float>()[i] - f32[i], 2), norm += f32[i] * f32[i];
    errors[dtype] = std::sqrt(error / norm);
  }
  EXPECT_GT(errors["f16"], 1e-6);
  EXPECT_LT(errors["f16"], errors["bf16"] / 4);
  EXPECT_LT(errors["bf16"], 0.1);
}

TEST_F(TextToImageOf, pictures__come_one_by_one_with_the_noise_of_their_number) {
  TextToImageRequest q = request();
  q.count = 3, q.options.batch = 2, q.options.steps = 2, q.options.noise = "ebb";
  const auto three = pictures(q);
  ASSERT_EQ(three.size(), 3u);
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(three[static_cast<size_t>(i)].index, i);
  q.count = 1, q.first_image = 2;
  const auto third = pictures(q);
  const auto a = numbers(three[2].latents), b = numbers(third.at(0).latents);
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-4) << i;
}

// Kernels are chosen for the whole batch, so the last bits of a picture depend on its size.
TEST_F(TextToImageOf, batch_invariant_pictures__have_the_bits_of_single_ones) {
  TextToImageRequest q = request();
  q.count = 5, q.options.steps = 3, q.options.noise = "ebb", q.options.sampler = "dpmpp_2m_sde";
  q.options.batch_invariant = true;
  const auto many = pictures(q);
  ASSERT_EQ(many.size(), 5u);
  for (size_t i = 0; i < many.size(); ++i) {
    TextToImageRequest one = q;
    one.count = 1, one.first_image = static_cast<int64_t>(i), one.options.batch_invariant = i % 2;
    const auto alone = pictures(one);
    EXPECT_EQ(numbers(alone.at(0).latents), numbers(many[i].latents)) << i;
    EXPECT_EQ(numbers(alone[0].pixels), numbers(many[i].pixels)) << i;
  }
  q.options.batch = 2;
  EXPECT_EQ(error_of([&] { pipeline_.resolve(q); }),
            "sample: --batch-invariant evaluates images alone, --batch 2 together");
}

TEST_F(TextToImageOf, steps__show_the_latest_prediction_to_who_asks) {
  TextToImageRequest q = request();
  q.count = 3, q.options.batch = 2, q.options.steps = 3, q.options.noise = "ebb";
  std::vector<Shape> seen;
  RunEvents events;
  Tensor last;
  events.step = [&](const StepView& s) {
    EXPECT_EQ(s.steps, 3);
    if (s.step != 3) return;
    last = s.denoised();
    seen.push_back(last.shape());
  };
  Picture made;
  events.picture = [&](Picture p) { made = std::move(p); };
  pipeline_.run(pipeline_.resolve(q), events);
  EXPECT_EQ(seen, (std::vector<Shape>{{2, 8, 16, 4}, {1, 8, 16, 4}}));
  EXPECT_EQ(numbers(last), numbers(made.latents));  // euler ends at its last prediction
}

TEST_F(TextToImageOf, progress__rises_to_one_through_all_stages) {
  TextToImageRequest q = request();
  q.count = 2, q.options.batch = 1, q.options.steps = 2;
  double before = 0;
  std::array<int, stage_count> seen{};
  RunEvents events;
  events.progress = [&](const RunProgress& p) {
    EXPECT_GE(p.of_run, before);
    before = p.of_run;
    ++seen[static_cast<size_t>(p.stage)];
    return true;
  };
  const RunReport report = pipeline_.run(pipeline_.resolve(q), events);
  EXPECT_DOUBLE_EQ(before, 1);
  EXPECT_EQ(report.steps, 2);
  for (const Stage s : {Stage::text, Stage::sampling, Stage::decoding})
    EXPECT_GT(seen[static_cast<size_t>(s)], 0) << name_of(s);
}

TEST_F(TextToImageOf, run_that_is_stopped__keeps_its_pictures_and_the_next_one_works) {
  TextToImageRequest q = request();
  q.count = 2, q.options.batch = 1, q.options.steps = 2;
  std::vector<Picture> kept;
  RunEvents events;
  events.picture = [&](Picture p) { kept.push_back(std::move(p)); };
  events.progress = [&](const RunProgress&) { return kept.empty(); };
  EXPECT_THROW(pipeline_.run(pipeline_.resolve(q), events), Cancelled);
  ASSERT_EQ(kept.size(), 1u);
  q.count = 1;
  EXPECT_EQ(numbers(pictures(q).at(0).pixels), numbers(kept[0].pixels));
}

// What lies between the passes may take as long as a pass.
TEST_F(TextToImageOf, second_pass__can_be_stopped_before_its_first_step) {
  TextToImageRequest q = request();
  q.count = 2, q.options.batch = 1, q.options.steps = 1;
  q.hires = Hires{.scale = 2, .upscaler = "lanczos", .steps = 1, .strength = 1};
  const ResolvedTextToImage r = pipeline_.resolve(q);
  KnownFlops flops;
  const RunWork work = run_work(pipeline_.parts(), r, flops);
  ASSERT_EQ(work.passes.size(), 2u);
  // of the second picture: where its first pass ends, and where the second pass has its first step
  const double first = 0.5 * (1 + work.passes[0].all() / work.of_passes()),
               second = first + 0.5 * work.passes[1].before_steps() / work.of_passes();
  const auto run = [&](double ends) {
    struct Seen {
      std::vector<double> between;
      size_t pictures = 0;
    } seen;
    RunEvents events;
    events.picture = [&](const Picture&) { ++seen.pictures; };
    events.progress = [&](const RunProgress& p) {
      const bool now = p.stage == Stage::sampling && p.of_stage > first + 1e-9;
      if (now && p.of_stage < second - 1e-9) seen.between.push_back(p.of_stage);
      return !now || p.of_stage < ends;
    };
    if (ends > 1)
      pipeline_.run(r, events);
    else
      EXPECT_THROW(pipeline_.run(r, events), Cancelled);
    return seen;
  };
  const auto whole = run(2);
  EXPECT_EQ(whole.pictures, 2u);
  ASSERT_GT(whole.between.size(), 10u);  // of decoding and of encoding
  EXPECT_TRUE(std::ranges::is_sorted(whole.between));
  for (const size_t k : {size_t{0}, whole.between.size() / 2, whole.between.size() - 1}) {
    const auto stopped = run(whole.between[k]);
    EXPECT_EQ(stopped.between.size(), k + 1);
    EXPECT_EQ(stopped.pictures, 1u);
  }
}

TEST_F(TextToImageOf, plans__are_made_only_until_the_caller_says_no) {
  const ResolvedTextToImage r = pipeline_.resolve(request());
  int asked = 0;
  RunEvents events;
  events.progress = [&](const RunProgress&) { return ++asked < 2; };
  bool planned = false;
  events.planned = [&](const RunMemory&) { planned = true; };
  EXPECT_THROW(pipeline_.run(r, events), Cancelled);
  EXPECT_FALSE(planned);
}

// Between any two of them: nothing is lost for the next run.
TEST_F(TextToImageOf, weights_that_are_read__can_be_stopped) {
  const ResolvedTextToImage r = pipeline_.resolve(request());
  std::vector<float> pixels;
  bool planned = false;
  int asked = 0;  // from then on to the first step
  RunEvents events;
  events.planned = [&](const RunMemory&) { planned = true; };
  events.picture = [&](const Picture& p) { pixels = numbers(p.pixels); };
  const auto ends_after = [&](int most) {
    asked = 0, planned = false;
    events.progress = [&, most](const RunProgress& p) {
      if (planned && (p.stage == Stage::text || p.of_stage == 0)) ++asked;
      return asked <= most;
    };
  };
  ends_after(1 << 30);
  TextToImage(small_checkpoint(golden()), context_).run(r, events);
  const int all = asked;
  const std::vector<float> whole = pixels;
  EXPECT_GT(all, 100);  // there are 304 weights
  for (const int most : {1, all / 2}) {
    TextToImage pipeline(small_checkpoint(golden()), context_);
    ends_after(most);
    EXPECT_THROW(pipeline.run(r, events), Cancelled);
    ends_after(1 << 30);
    pipeline.run(r, events);
    EXPECT_EQ(pixels, whole) << most << " of " << all;
  }
}

TEST_F(TextToImageOf, mistakes__are_found_when_a_request_is_resolved) {
  TextToImageRequest q = request();
  q.clip_skip = 99;
  EXPECT_EQ(error_of([&] { pipeline_.resolve(q); }).find("generate: --clip-skip 99 leaves no"), 0u);
  q = request();
  q.count = 0;
  EXPECT_EQ(error_of([&] { pipeline_.resolve(q); }), "generate: --n must be 1 to 10000 (got 0)");
}

// Before it spends the time.
TEST_F(TextToImageOf, size_far_beyond_the_models__is_a_warning) {
  const CheckpointParts parts = small_checkpoint(golden());
  TextToImageRequest q = request();
  const auto said = [&](int64_t height, int64_t width) {
    q.size = {.height = height, .width = width};
    std::vector<std::string> out = resolve(parts, q).warnings;
    std::erase_if(out, [](const std::string& w) { return !w.starts_with("size: "); });
    return out;
  };
  const ImageSize own = own_size(parts.denoiser);
  EXPECT_TRUE(said(4 * own.height, 4 * own.width).empty());
  EXPECT_TRUE(said(own.height / 2, 8 * own.width).empty());
  const auto wide = said(4 * own.height, 8 * own.width);
  ASSERT_EQ(wide.size(), 1u);
  EXPECT_NE(wide[0].find(" has 32 times the pixels"), std::string::npos) << wide[0];
}

TEST_F(TextToImageOf, guidance_of_the_file__is_told_where_it_is_not_the_usual) {
  CheckpointParts parts = small_checkpoint(golden());
  TextToImageRequest q = request();
  const auto notes = [&](double of_file) {
    parts.guidance = of_file;
    q.options.guidance = 7, q.options.guidance_open = true;
    return resolve(parts, q).notes;
  };
  EXPECT_EQ(notes(3),
            std::vector<std::string>{
                "model: its file asks for guidance 3 (usually 7); --guidance sets another"});
  EXPECT_TRUE(notes(7).empty());
}

// Where nothing names a sampler: of the folder's scheduler in its own dialect alone.
TEST_F(TextToImageOf, sampler__is_that_of_the_folders_scheduler) {
  CheckpointParts parts = small_checkpoint(golden());
  TextToImageRequest q = request();
  q.options.sampler = q.options.schedule = "auto", q.options.schedule_options.clear();
  const auto ran = [&](const char* dialect) {
    q.options.dialect = dialect;
    const ResolvedTextToImage r = resolve(parts, q);
    return str(r.first().options.sampler, " ", r.first().options.options, " ", r.warnings.size());
  };
  EXPECT_EQ(ran("diffusers"), "dpmpp_2m  0");
  parts.scheduler = SchedulerConfig{.name = "PNDMScheduler", .sampler = "plms"};
  EXPECT_EQ(ran("diffusers"), "plms  0");
  EXPECT_EQ(ran("ebb"), "dpmpp_2m  0");
  parts.scheduler = SchedulerConfig{.name = "UniPCMultistepScheduler",
                                    .sampler = "uni_pc",
                                    .sampler_options = {{"variant", "bh2"}, {"order", "2"}}};
  EXPECT_EQ(ran("diffusers"), "uni_pc variant=bh2,order=2 0");
  q.options.options = "order=1";
  EXPECT_EQ(ran("diffusers"), "uni_pc order=1,variant=bh2 0");
  q.options.options.clear();
  parts.scheduler = SchedulerConfig{.name = "NewScheduler"};
  EXPECT_EQ(ran("diffusers"), "dpmpp_2m  1");
}

TEST_F(TextToImageOf, negative_prompt_without_effect__is_said_once_with_the_reason) {
  TextToImageRequest q = request();
  q.negative = "water", q.options.guidance = 1;
  const auto said = [](const ResolvedTextToImage& r) {
    std::vector<std::string> out = r.warnings;
    std::erase_if(out, [](const std::string& w) { return w.find("negative") == w.npos; });
    return out;
  };
  EXPECT_EQ(said(pipeline_.resolve(q)),
            std::vector<std::string>{"--negative has no effect with --guidance 1"});
  nlohmann::json run = golden();
  run["unet"]["guidance_channels"] = 8;
  q.options.guidance = 4;
  EXPECT_EQ(said(pipeline_.resolve(q)), std::vector<std::string>{});
  EXPECT_EQ(said(resolve(small_checkpoint(run), q)),
            std::vector<std::string>{"--negative has no effect on a network of distilled guidance, "
                                     "which has no negative prompt"});
}

// Whoever reads the folder. Steps and guidance are those of consistency models only where nothing
// says them.
TEST_F(TextToImageOf, latent_consistency_model__runs_with_its_sampler_in_every_dialect) {
  CheckpointParts parts = small_checkpoint(golden());
  parts.scheduler = SchedulerConfig{.name = "LCMScheduler", .sampler = "lcm"};
  TextToImageRequest q = request();
  q.options.sampler = q.options.schedule = "auto", q.options.schedule_options.clear();
  q.options.guidance = 7, q.negative.clear();
  const auto ran = [&](const char* dialect) {
    q.options.dialect = dialect;
    const ResolvedTextToImage r = resolve(parts, q);
    const GenerateOptions& o = r.first().options;
    EXPECT_TRUE(r.warnings.empty()) << r.warnings[0];
    EXPECT_EQ(
        r.notes,
        (std::vector{str("scheduler: a latent consistency model (LCMScheduler): takes --sampler "
                         "lcm --steps ",
                         o.steps, " --guidance ", o.guidance, "; flags say others")}));
    return str(o.sampler, ' ', o.schedule, ' ', o.steps, ' ', o.guidance);
  };
  const auto steps = q.options.steps;
  EXPECT_EQ(ran("ebb"), str("lcm normal ", steps, " 7"));
  q.options.steps_open = q.options.guidance_open = true;
  EXPECT_EQ(ran("ebb"), "lcm normal 4 1");
  EXPECT_EQ(ran("comfy"), "lcm simple 4 1");
  EXPECT_EQ(ran("a1111"), "lcm uniform 4 1");
  EXPECT_EQ(ran("diffusers"), "lcm lcm 4 1");
  q.options.sampler = "euler";
  EXPECT_TRUE(resolve(parts, q).notes.empty());
}

}  // namespace ebb::testing::text_to_image_test
