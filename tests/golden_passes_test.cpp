// Runs of two passes: the refiner against diffusers' pipelines, and the resampling of latents
// against torch (tools/golden/modes_golden.py).
#include <gtest/gtest.h>

#include "backends.h"
#include "pipeline/latent_resize.h"
#include "pipeline/text_to_image.h"
#include "support/files.h"
#include "support/golden_distance.h"
#include "support/golden_runs.h"
#include "support/small_checkpoint.h"

namespace ebb::testing::golden_passes_test {
namespace {

const nlohmann::json& golden() {
  static const nlohmann::json all = read_golden("text_to_image_modes");
  return all;
}

class Passes : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!text::has_builtin_clip_vocabulary()) GTEST_SKIP() << "built without a vocabulary";
  }
  Context context_ = open_context("cpu", {.threads = 2});
};

}  // namespace

TEST_F(Passes, refiner__takes_over_as_in_the_reference) {
  const nlohmann::json& g = golden()["refined"][0];
  CheckpointParts parts = small_checkpoint(g);
  parts.refiner = denoiser_of(g["refiner"]);
  parts.refiner_encoders = parts.text_encoders;
  TextToImage pipeline(parts, context_);
  TextToImageRequest q = recorded_request(g);
  q.refine = Refine{.share = g["share"]};
  const Picture p = picture_of(pipeline, q);
  EXPECT_LT(distance("latents", p.latents.span<float>(), g["latents"]), 1e-4);
  EXPECT_LT(distance("pixels", p.pixels.span<float>(), g["pixels"]), 1e-4);
  q.refine->share = 0;
  EXPECT_EQ(error_of([&] {
              pipeline.resolve(q);
            }).find("generate: --refiner: at a share of 0 it takes over at step 1 of 20"),
            0u);
}

// A refiner that is the network itself changes nothing, in what the prompt says at each step
// either.
TEST_F(Passes, refiner__goes_on_in_the_prompts_schedule) {
  const nlohmann::json& g = golden()["refined"][0];
  CheckpointParts parts = small_checkpoint(g);
  parts.refiner = parts.denoiser;
  parts.refiner_encoders = parts.text_encoders;
  TextToImage pipeline(parts, context_);
  TextToImageRequest q = recorded_request(g);
  q.pixels = false;
  q.syntax = text::PromptSyntax::a1111;
  q.options.dialect = "ebb", q.options.noise = "auto";
  q.options.sampler = "euler_ancestral", q.options.steps = 4;
  q.prompt = "a [cat:dog in the rain:0.5]";
  const Tensor whole = picture_of(pipeline, q).latents;
  q.refine = Refine{.share = 0.5};
  const Tensor refined = picture_of(pipeline, q).latents;
  for (size_t i = 0; i < whole.span<float>().size(); ++i)
    ASSERT_NEAR(refined.span<float>()[i], whole.span<float>()[i], 1e-4) << i;
  q.prompt = "a cat";
  const Tensor other = picture_of(pipeline, q).latents;
  EXPECT_FALSE(std::ranges::equal(other.span<float>(), refined.span<float>()));
}

TEST(latent_resize, values__are_torchs) {
  Tensor x(DType::f32, {1, 5, 6, 2});
  for (int64_t i = 0; i < 60; ++i)
    x.span<float>()[static_cast<size_t>(i)] = static_cast<float>(i * i % 17);
  const std::map<std::string, LatentFilter> filters = {
      {"nearest", LatentFilter::nearest},
      {"nearest_exact", LatentFilter::nearest_exact},
      {"bilinear", LatentFilter::bilinear},
      {"bicubic", LatentFilter::bicubic},
      {"bilinear_antialias", LatentFilter::bilinear_antialias},
      {"bicubic_antialias", LatentFilter::bicubic_antialias}};
  for (const auto& g : golden()["resizes"]) {
    const std::string name = g["filter"];
    const Tensor out = resized(x, g["height"], g["width"], filters.at(name));
    const auto want = g["values"].get<std::vector<float>>();
    ASSERT_EQ(out.span<float>().size(), want.size());
    for (size_t i = 0; i < want.size(); ++i)
      ASSERT_NEAR(out.span<float>()[i], want[i], 2e-5)
          << name << " " << g["height"] << "x" << g["width"] << " at " << i;
  }
}

TEST_F(Passes, hires__runs_a_second_pass_at_its_size) {
  TextToImage pipeline(small_checkpoint(golden()["runs"][0]), context_);
  TextToImageRequest q = recorded_request(golden()["runs"][0]);
  q.options.steps = 4, q.options.noise = "ebb", q.options.dialect = "ebb";
  q.options.schedule = "karras";
  q.hires = Hires{.scale = 1.5, .upscaler = "latent-bicubic", .steps = 2, .strength = 0.5};
  const ResolvedTextToImage r = pipeline.resolve(q);
  ASSERT_EQ(r.passes.size(), 2u);
  EXPECT_EQ(r.passes[1].request.call.sigmas.size(), 2u);  // one of two steps
  const Picture large = picture_of(pipeline, q);
  EXPECT_EQ(large.pixels.shape(), (Shape{96, 96, 3}));
  q.hires->strength = 0.01;  // no step is left
  EXPECT_NE(error_of([&] { pipeline.resolve(q); }).find("leaves none of"), std::string::npos);
  for (const char* upscaler : {"latent", "latent-nearest", "latent-antialiased", "lanczos"}) {
    q.hires = Hires{.scale = 2, .upscaler = upscaler, .strength = 0.5};
    EXPECT_EQ(picture_of(pipeline, q).pixels.shape(), (Shape{128, 128, 3})) << upscaler;
  }
  q.hires->upscaler = "latent-cubic";
  EXPECT_EQ(error_of([&] { pipeline.resolve(q); }).find("generate: --hires: unknown upscaler"), 0u);
}

TEST(hires, text__has_a_scale_and_up_to_three_more) {
  const Hires h = parse_hires("1.5:lanczos:12:0.4");
  EXPECT_EQ(h.scale, 1.5);
  EXPECT_EQ(h.upscaler, "lanczos");
  EXPECT_EQ(h.steps, 12);
  EXPECT_EQ(h.strength, 0.4);
  EXPECT_EQ(parse_hires("2::8").upscaler, "latent");
  EXPECT_EQ(hires_size({.scale = 1.5}, {.height = 512, .width = 520}, 8),
            (ImageSize{.height = 768, .width = 776}));
  for (const char* bad : {"", "x", "2:latent:1.5", "2:latent:-1", "2:latent:3:y", "2:a:1:1:1"})
    EXPECT_EQ(error_of([&] { parse_hires(bad); }).find("generate: --hires"), 0u) << bad;
}

}  // namespace ebb::testing::golden_passes_test
