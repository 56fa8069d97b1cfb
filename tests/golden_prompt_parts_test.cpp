// Runs of prompts of several parts, joined by AND, against diffusers' U-Net
// (tools/golden/prompt_parts_golden.py).
#include <gtest/gtest.h>

#include "support/files.h"
#include "support/golden_distance.h"
#include "support/golden_runs.h"
#include "support/small_checkpoint.h"

namespace ebb::testing::golden_prompt_parts_test {
namespace {

const nlohmann::json& runs() {
  static const nlohmann::json all = read_golden("prompt_parts")["runs"];
  return all;
}

TextToImageRequest request_of(const nlohmann::json& g) {
  TextToImageRequest q = recorded_request(g);
  q.syntax = text::PromptSyntax::a1111;
  return q;
}

class GoldenPromptParts : public GoldenRunOn {};
INSTANTIATE_TEST_SUITE_P(cpu, GoldenPromptParts, ::testing::ValuesIn(runs_on(runs(), "cpu")),
                         name_of_run);
INSTANTIATE_TEST_SUITE_P(cuda, GoldenPromptParts, ::testing::ValuesIn(runs_on(runs(), "cuda")),
                         name_of_run);

}  // namespace

TEST_P(GoldenPromptParts, run__ends_at_the_references_latents_and_pixels) {
  const nlohmann::json& g = run();
  const Picture made = picture_of(small_checkpoint(g), request_of(g), context_);
  EXPECT_LT(distance("latents", made.latents.span<float>(), g["latents"]), 1e-4);
  EXPECT_LT(distance("pixels", made.pixels.span<float>(), g["pixels"]), 1e-4);
}

TEST(prompt_parts, too_many__are_an_error_before_the_run) {
  const nlohmann::json& g = runs()[0];
  TextToImageRequest q = request_of(g);
  q.prompt = "a";
  for (int i = 0; i < 40; ++i) q.prompt += " AND b";
  expect_error([&] { resolve(small_checkpoint(g), q); },
               "generate: a prompt may have 32 parts, joined by AND (got 41)");
}

}  // namespace ebb::testing::golden_prompt_parts_test
