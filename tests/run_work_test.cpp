// RunWork: what shares of progress and the time that is left go by.
#include "pipeline/run_work.h"

#include <gtest/gtest.h>

#include "pipeline/control.h"
#include "support/golden_distance.h"
#include "support/golden_runs.h"
#include "support/patterns.h"
#include "support/small_checkpoint.h"

namespace ebb::testing::run_work_test {
namespace {

using nlohmann::json;

const json& first_run(const char* file) {
  static std::map<std::string, json> all;
  if (!all.contains(file)) all[file] = read_golden(file)["runs"][0];
  return all[file];
}

struct Controlled {
  CheckpointParts parts;
  TextToImageRequest request;

  PassWork work() const {
    KnownFlops flops;
    return run_work(parts, resolve(parts, request), flops).passes.at(0);
  }
};

// 20 steps, of which the first half has the network.
Controlled half_controlled(const json& run, const LoadedComponent& network) {
  Controlled out{small_checkpoint(run), recorded_request(run)};
  out.parts.denoiser = with_controls(out.parts.denoiser, {network});
  out.request.options.steps = 20;
  out.request.controls = {{.image = pattern(run["height"], run["width"], 1), .end = 0.5}};
  return out;
}

double plain_step(const json& run) {
  const CheckpointParts parts = small_checkpoint(run);
  TextToImageRequest q = recorded_request(run);
  q.options.steps = 20;
  KnownFlops flops;
  return run_work(parts, resolve(parts, q), flops).passes.at(0).steps.at(0);
}

}  // namespace

TEST(run_work, networks__are_counted_once_for_each_size) {
  const json& run = first_run("text_to_image");
  const CheckpointParts parts = small_checkpoint(run);
  TextToImageRequest q = recorded_request(run);
  KnownFlops known;
  const auto work = [&] { return run_work(parts, resolve(parts, q), known); };
  const RunWork first = work();
  const KnownFlops counted = known;
  EXPECT_EQ(counted.size(), 2u);  // the denoiser and the decoder
  EXPECT_EQ(work().of_run(3, false), first.of_run(3, false));
  EXPECT_EQ(known, counted);
  q.size.height *= 2;
  KnownFlops fresh;
  EXPECT_EQ(work().of_run(3, false), run_work(parts, resolve(parts, q), fresh).of_run(3, false));
  EXPECT_EQ(known.size(), 4u);
}

TEST(run_work, steps__count_by_the_control_networks_that_take_part) {
  const json& run = first_run("control_runs");
  Controlled c = half_controlled(run, component("control_net", run["control"]));
  const double plain = plain_step(run);
  EXPECT_NEAR(plain, 1, 1e-9);  // the unit, with guidance
  const PassWork half = c.work();
  ASSERT_EQ(half.steps.size(), 20u);
  for (size_t i = 0; i < 10; ++i) {
    EXPECT_GT(half.steps[i], 1.3 * plain) << i;
    EXPECT_DOUBLE_EQ(half.steps[i], half.steps[0]) << i;
    EXPECT_DOUBLE_EQ(half.steps[i + 10], plain) << i;
  }
  EXPECT_DOUBLE_EQ(half.of_steps(0.25), 5 * half.steps[0]);
  EXPECT_DOUBLE_EQ(half.of_steps(0.525), 10 * half.steps[0] + 0.5 * plain);
  c.request.options.guidance = 1, c.request.options.rules = "cfg:scale=3";  // all in one plan
  EXPECT_DOUBLE_EQ(c.work().steps.at(19), half.steps[0]);
  c.request.options.rules.clear(), c.request.options.guidance = 3;
  c.request.controls.push_back(c.request.controls[0]);  // two that overlap
  c.request.controls[1].start = 0.4, c.request.controls[1].end = 1;
  c.parts.denoiser = with_controls(c.parts.denoiser, {component("control_net", run["control"])});
  const std::vector<double> two = c.work().steps;
  EXPECT_DOUBLE_EQ(two.at(0), half.steps[0]);
  EXPECT_GT(two.at(9), 1.2 * two.at(0));
  EXPECT_DOUBLE_EQ(two.at(19), two.at(0));
}

// Their keys and values are computed once a run.
TEST(run_work, steps_with_an_image_adapter__count_its_attention) {
  const json& run = first_run("image_adapter_runs");
  Controlled c = half_controlled(run, component("ip_adapter", run["adapters"][0]));
  c.parts.image_encoder = component("clip_vision", run["encoder"]);
  const PassWork half = c.work();
  const double plain = plain_step(run);
  EXPECT_GT(half.steps.at(0), 1.0001 * plain);
  EXPECT_LT(half.steps.at(0), 1.2 * plain);
  EXPECT_DOUBLE_EQ(half.steps.at(19), plain);
}

// The share of sampling that is done goes by the work of the steps, not by their number.
TEST(run_work, progress__goes_by_the_work_of_steps) {
  if (!text::has_builtin_clip_vocabulary()) GTEST_SKIP() << "built without a vocabulary";
  const json& run = first_run("control_runs");
  Controlled c = half_controlled(run, component("control_net", run["control"]));
  c.request.options.steps = 4;
  const PassWork work = c.work();
  TextToImage pipeline(c.parts, open_context("cpu", {.threads = 2}));
  std::set<double> seen;
  RunEvents events;
  events.progress = [&](const RunProgress& p) {
    if (p.stage == Stage::sampling) seen.insert(p.of_stage);
    return true;
  };
  pipeline.run(pipeline.resolve(c.request), events);
  for (const double share : {0.25, 0.5, 0.75, 1.0}) {
    const double done = work.of_steps(share) / work.all();
    EXPECT_TRUE(seen.lower_bound(done - 1e-9) != seen.end() &&
                *seen.lower_bound(done - 1e-9) < done + 1e-9)
        << share;
  }
  EXPECT_GT(work.of_steps(0.5) / work.all(), 0.55);
}

}  // namespace ebb::testing::run_work_test
