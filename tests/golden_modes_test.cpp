// Runs that start from a picture against diffusers' own pipelines (tools/golden/modes_golden.py).
#include <gtest/gtest.h>

#include "support/files.h"
#include "support/golden_distance.h"
#include "support/golden_pictures.h"
#include "support/golden_runs.h"
#include "support/small_checkpoint.h"

namespace ebb::testing::golden_modes_test {
namespace {

const nlohmann::json& runs() {
  static const nlohmann::json all = read_golden("text_to_image_modes")["runs"];
  return all;
}

TextToImageRequest request_of(const nlohmann::json& g) {
  const int64_t side = g["height"];
  TextToImageRequest q = recorded_request(g);
  q.init = InitImage{.picture = golden_picture(side, side), .strength = g["strength"]};
  if (g["mask"]) q.mask = MaskImage{.picture = golden_mask(side, side), .overlay = false};
  return q;
}

class GoldenModes : public GoldenRunOn {};
INSTANTIATE_TEST_SUITE_P(cpu, GoldenModes, ::testing::ValuesIn(runs_on(runs(), "cpu")),
                         name_of_run);
INSTANTIATE_TEST_SUITE_P(cuda, GoldenModes, ::testing::ValuesIn(runs_on(runs(), "cuda")),
                         name_of_run);

// ---- editing by instructions ---------------------------------------------------------------

const nlohmann::json& edits() {
  static const nlohmann::json all = read_golden("text_to_image_modes")["edits"];
  return all;
}

TextToImageRequest edit_of(const nlohmann::json& g) {
  TextToImageRequest q = recorded_request(g);
  q.init = InitImage{.picture = golden_picture(g["height"], g["width"])};
  q.image_guidance = g["image_guidance"];
  return q;
}

}  // namespace

TEST_P(GoldenModes, run__ends_at_the_references_latents_and_pixels) {
  const nlohmann::json& g = run();
  const Picture made = picture_of(small_checkpoint(g), request_of(g), context_);
  constexpr double of_run = 1e-4;
  EXPECT_LT(distance("latents", made.latents.span<float>(), g["latents"]), of_run);
  EXPECT_LT(distance("pixels", made.pixels.span<float>(), g["pixels"]), of_run);
}

class GoldenEdits : public GoldenModes {};
INSTANTIATE_TEST_SUITE_P(cpu, GoldenEdits, ::testing::ValuesIn(runs_on(edits(), "cpu")),
                         name_of_run);
INSTANTIATE_TEST_SUITE_P(cuda, GoldenEdits, ::testing::ValuesIn(runs_on(edits(), "cuda")),
                         name_of_run);

// StableDiffusionInstructPix2PixPipeline and that of XL: three predictions in every step.
TEST_P(GoldenEdits, run__ends_at_the_references_latents_and_pixels) {
  const nlohmann::json& g = run();
  const Picture made = picture_of(small_checkpoint(g), edit_of(g), context_);
  EXPECT_LT(distance("latents", made.latents.span<float>(), g["latents"]), 1e-4);
  EXPECT_LT(distance("pixels", made.pixels.span<float>(), g["pixels"]), 1e-4);
}

// Then one prediction is all that a step evaluates.
TEST(edits, scales_of_1__are_one_prediction) {
  const CheckpointParts parts = small_checkpoint(edits()[0]);
  TextToImageRequest q = edit_of(edits()[0]);
  const ResolvedTextToImage both = resolve(parts, q);
  EXPECT_TRUE(both.first().guided);
  EXPECT_EQ(both.first().options.rules, "");
  EXPECT_EQ(both.first().options.guidance, q.options.guidance);
  q.options.guidance = q.image_guidance = 1;
  EXPECT_FALSE(resolve(parts, q).first().guided);
  q.image_guidance = 2;
  EXPECT_TRUE(resolve(parts, q).first().guided);
}

TEST(edits, requests_that_do_not_go_together__are_errors) {
  const CheckpointParts parts = small_checkpoint(edits()[0]);
  const auto error = [&](const auto& change) {
    TextToImageRequest q = edit_of(edits()[0]);
    change(q);
    return error_of([&] { resolve(parts, q); });
  };
  EXPECT_NE(error([](auto& q) { q.init.reset(); }).find("the model edits a picture: --init FILE"),
            std::string::npos);
  EXPECT_NE(error([](auto& q) { q.init->strength = 0.5; }).find("--strength (0.5)"),
            std::string::npos);
  EXPECT_NE(error([](auto& q) {
              q.mask = MaskImage{.picture = golden_mask(64, 64)};
            }).find("--mask and --outpaint with a model that edits"),
            std::string::npos);
  EXPECT_NE(error([](auto& q) {
              q.options.guidance = 1, q.options.rules = "cfg:scale=3", q.image_guidance = 2;
            }).find("give --image-guidance (2) or --rules (cfg:scale=3), not both"),
            std::string::npos);
}

TEST(edits, image_guidance_without_a_model_that_edits__is_an_error) {
  TextToImageRequest q = request_of(runs()[0]);
  q.image_guidance = 2;
  expect_error([&] { resolve(small_checkpoint(runs()[0]), q); },
               "--image-guidance (2) has no effect on a model that does not edit pictures");
}

}  // namespace ebb::testing::golden_modes_test
