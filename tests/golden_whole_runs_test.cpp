// Runs of diffusers' pipelines (tools/golden/whole_run_golden.py): what they decide beside the
// network and the scheduler; and second passes at a larger size.
#include <gtest/gtest.h>

#include "support/golden_distance.h"
#include "support/golden_runs.h"
#include "support/small_checkpoint.h"

namespace ebb::testing::golden_whole_runs_test {
namespace {

const nlohmann::json& runs() {
  static const nlohmann::json all = read_golden("whole_runs")["runs"];
  return all;
}

const nlohmann::json& golden(const std::string& name) {
  for (const nlohmann::json& run : runs())
    if (run["case"] == name) return run;
  fail("no golden run ", name);
}

CheckpointParts parts_of(const nlohmann::json& run) {
  CheckpointParts out = small_checkpoint(run);
  if (run.contains("zeros")) out.zeros_for_empty = run["zeros"].get<bool>();
  return out;
}

TextToImageRequest request_of(const nlohmann::json& run) {
  TextToImageRequest out = recorded_request(run);
  if (const auto h = run.find("hires"); h != run.end())
    out.hires = Hires{.scale = h->at("scale"),
                      .upscaler = h->at("upscaler"),
                      .steps = run["steps"],
                      .strength = h->at("strength")};
  return out;
}

class GoldenWholeRuns : public GoldenRunOn {};
INSTANTIATE_TEST_SUITE_P(cpu, GoldenWholeRuns, ::testing::ValuesIn(runs_on(runs(), "cpu")),
                         name_of_run);
INSTANTIATE_TEST_SUITE_P(cuda, GoldenWholeRuns, ::testing::ValuesIn(runs_on(runs(), "cuda")),
                         name_of_run);

class WholeRuns : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!text::has_builtin_clip_vocabulary()) GTEST_SKIP() << "built without a vocabulary";
  }
  Context context_ = open_context("cpu", {.threads = 2});
};

constexpr double of_run = 1e-4;

}  // namespace

TEST_P(GoldenWholeRuns, run__ends_at_the_references_latents_and_pixels) {
  const nlohmann::json& g = run();
  TextToImage pipeline(parts_of(g), context_);
  const Picture p = picture_of(pipeline, request_of(g));
  const auto shape = g["latents"]["shape"].get<std::vector<int64_t>>();
  ASSERT_EQ(p.latents.shape(), (Shape{shape.end()[-3], shape.end()[-2], shape.end()[-1]}));
  // A byte of the enlarged picture that is rounded the other way.
  const double bound = g["case"] == "hires_lanczos" ? 1e-3 : of_run;
  EXPECT_LT(distance("latents", p.latents.span<float>(), g["latents"]), bound);
  EXPECT_LT(distance("pixels", p.pixels.span<float>(), g["pixels"]), bound);
}

// diffusers' folders say it; A1111 always has zeros, ComfyUI never.
TEST_F(WholeRuns, empty_negative__is_that_of_the_dialect) {
  const nlohmann::json &zeros = golden("xl_empty_zeros"), &encoded = golden("xl_empty_encoded");
  const auto latents = [&](const std::string& dialect, std::optional<bool> folder) {
    CheckpointParts parts = small_checkpoint(zeros);
    parts.zeros_for_empty = folder;
    TextToImage pipeline(std::move(parts), context_);
    TextToImageRequest q = recorded_request(zeros);
    q.pixels = false;
    q.options.dialect = dialect;
    return picture_of(pipeline, q).latents;
  };
  const auto is = [&](const Tensor& got, const nlohmann::json& g) {
    return distance("latents", got.span<float>(), g["latents"]) < of_run;
  };
  EXPECT_TRUE(is(latents("diffusers", {}), zeros));
  EXPECT_TRUE(is(latents("diffusers", false), encoded));
  // The other dialects start from the noise times the first level, and round no timesteps.
  const Tensor a1111 = latents("a1111", false), comfy = latents("comfy", true),
               ebb = latents("ebb", false), sdcpp = latents("sdcpp", true);
  EXPECT_TRUE(std::ranges::equal(a1111.span<float>(), ebb.span<float>()));
  EXPECT_FALSE(std::ranges::equal(a1111.span<float>(), comfy.span<float>()));
  EXPECT_FALSE(std::ranges::equal(a1111.span<float>(), sdcpp.span<float>()));
  const auto none = [](const char* dialect, const char* model) {
    return empty_negative(*find_family(find_component(model).config), dialect, {});
  };
  EXPECT_EQ(none("a1111", "sdxl"), EmptyNegative::zeros);
  EXPECT_EQ(none("a1111", "sdxl_refiner"), EmptyNegative::zeros);
  EXPECT_EQ(none("comfy", "sdxl"), EmptyNegative::encoded);
  EXPECT_EQ(none("sdcpp", "sdxl"), EmptyNegative::zero_states);
  EXPECT_EQ(none("diffusers", "sdxl"), EmptyNegative::zeros);
  EXPECT_EQ(none("diffusers", "sdxl_refiner"), EmptyNegative::encoded);
  EXPECT_EQ(none("a1111", "sd15"), EmptyNegative::encoded);
}

}  // namespace ebb::testing::golden_whole_runs_test
