// Runs by A1111's rules where they meet others: a refiner that takes over within a run with control
// networks, batches and rules, and prompts that count evaluations.
#include <gtest/gtest.h>

#include "base/names.h"
#include "support/files.h"
#include "support/golden_distance.h"
#include "support/golden_runs.h"
#include "support/patterns.h"
#include "support/small_checkpoint.h"

namespace ebb::testing::program_runs_test {
namespace {

const nlohmann::json& golden() {
  static const nlohmann::json runs = read_golden("control_runs")["runs"];
  return runs.at(0);
}

std::vector<float> numbers(const Tensor& t) {
  return {t.span<float>().begin(), t.span<float>().end()};
}

void expect_near(const std::vector<float>& a, const std::vector<float>& b, const char* what) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-3) << what << ' ' << i;
}

class ProgramRuns : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!text::has_builtin_clip_vocabulary()) GTEST_SKIP() << "built without a vocabulary";
  }
  static TextToImageRequest request(const std::string& sampler, int64_t steps) {
    TextToImageRequest q = recorded_request(golden());
    q.pixels = false;
    q.syntax = text::PromptSyntax::a1111;
    q.options.dialect = "a1111", q.options.noise = "auto", q.options.schedule = "auto";
    q.options.schedule_options.clear();
    q.options.sampler = sampler, q.options.steps = steps;
    return q;
  }
  // A refiner is the network itself, without its control networks.
  std::vector<float> latents(const TextToImageRequest& q) const {
    CheckpointParts parts = small_checkpoint(golden());
    if (q.refine) {
      parts.refiner = parts.denoiser;
      parts.refiner_encoders = parts.text_encoders;
    }
    if (!q.controls.empty())
      parts.denoiser =
          with_controls(parts.denoiser, {component("control_net", golden()["control"])});
    return numbers(picture_of(parts, q, context_).latents);
  }
  static ControlInput map(double start, double end) {
    return {.image = pattern(golden()["height"], golden()["width"], 3), .start = start, .end = end};
  }
  Context context_ = open_context("cpu", {.threads = 2});
};

}  // namespace

TEST_F(ProgramRuns, control_network_before_a_refiner__keeps_to_its_shares_of_the_whole_run) {
  for (const char* sampler : {"Euler", "DPM++ 2M"}) {
    TextToImageRequest q = request(sampler, 10);
    const auto of = [&](double start, double end, bool refined) {
      q.controls = {map(start, end)};
      q.refine = refined ? std::optional(Refine{.share = 0.7}) : std::nullopt;
      return latents(q);
    };
    const auto early = of(0, 0.35, false), late = of(0.25, 0.35, false), all = of(0, 1, false);
    EXPECT_NE(early, all);
    EXPECT_NE(early, late);
    expect_near(of(0, 0.35, true), early, sampler);
    expect_near(of(0.25, 0.35, true), late, sampler);
  }
}

TEST_F(ProgramRuns, prompt_that_counts_evaluations__does_so_with_rules) {
  TextToImageRequest q = request("Heun", 6);
  q.prompt = "a [fox:tree house:0.5]";
  q.options.guidance = 3;
  const auto guided = latents(q);
  q.options.guidance = 1, q.options.rules = "cfg:scale=3";
  expect_near(latents(q), guided, "rules");
  q.prompt = "a fox";
  EXPECT_NE(latents(q), guided);
}

TEST_F(ProgramRuns, prompt_that_counts_evaluations__goes_on_so_in_a_refiners_own_run) {
  TextToImageRequest q = request("Heun", 6);
  q.prompt = "a [fox:tree house:0.7]";
  q.options.guidance = 1, q.options.rules = "cfg:scale=3";
  const auto whole = latents(q);
  q.refine = Refine{.share = 0.5};
  expect_near(latents(q), whole, "refined");
}

TEST_F(ProgramRuns, samplers_of_other_counts__change_an_edited_prompt_at_an_evaluation) {
  for (const char* sampler : {"DPM fast", "DPM adaptive", "PLMS"}) {
    TextToImageRequest q = request(sampler, 12);
    q.prompt = "fox";
    const auto fox = latents(q);
    q.prompt = "tree house";
    const auto house = latents(q);
    q.prompt = "[fox:tree house:0.4]";
    const auto both = latents(q);
    EXPECT_NE(both, fox) << sampler;
    EXPECT_NE(both, house) << sampler;
  }
}

TEST_F(ProgramRuns, dialect__is_found_whatever_its_case) {
  for (const char* dialect : {"A1111", "COMFY", "Diffusers"}) {
    TextToImageRequest q = request("DDIM", 5);
    q.prompt = "a [fox:tree house:0.4] AND water";
    q.options.dialect = dialect;
    const auto large = latents(q);
    q.options.dialect = small_letters(dialect);
    EXPECT_EQ(large, latents(q)) << dialect;
    EXPECT_EQ(resolve(small_checkpoint(golden()), request("DDIM", 5)).first().options.dialect,
              "a1111");
  }
}

}  // namespace ebb::testing::program_runs_test
