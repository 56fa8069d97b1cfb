// Whole runs with control networks against diffusers (tools/golden/control_run_golden.py), and
// which networks and images are refused.
#include <gtest/gtest.h>

#include "io/image.h"
#include "pipeline/condition_sets.h"
#include "pipeline/control.h"
#include "pipeline/pipeline.h"
#include "pipeline/text_to_image.h"
#include "support/files.h"
#include "support/golden_distance.h"
#include "support/golden_runs.h"
#include "support/patterns.h"
#include "support/small_checkpoint.h"

namespace ebb::testing::golden_control_run_test {
namespace {

using nlohmann::json;

const json& runs() {
  static const json all = read_golden("control_runs")["runs"];
  return all;
}

std::vector<ControlInput> inputs_of(const json& run) {
  std::vector<ControlInput> out;
  for (const json& i : run["inputs"])
    out.push_back({.image = pattern(run["height"], run["width"], i["seed"]),
                   .strength = i["strength"],
                   .start = i.value("start", 0.0),
                   .end = i.value("end", 1.0),
                   .mode = control_mode(i.value("mode", "balanced"))});
  return out;
}

CheckpointParts checkpoint_of(const json& run) {
  CheckpointParts parts = small_checkpoint(run);
  const LoadedComponent network = run.contains("adapter")
                                      ? component("t2i_adapter", run["adapter"])
                                      : component("control_net", run["control"]);
  const std::vector<LoadedComponent> networks(run["inputs"].size(), network);
  parts.denoiser = with_controls(parts.denoiser, networks);
  return parts;
}

TextToImageRequest request_of(const json& g) {
  TextToImageRequest q = recorded_request(g);
  q.controls = inputs_of(g);
  return q;
}

class GoldenControlRun : public ::testing::TestWithParam<size_t> {
 protected:
  void SetUp() override {
    if (!text::has_builtin_clip_vocabulary()) GTEST_SKIP() << "built without a vocabulary";
  }
};
INSTANTIATE_TEST_SUITE_P(cpu, GoldenControlRun, ::testing::Range<size_t>(0, 9),
                         [](const auto& info) {
                           return runs()[info.param]["case"].template get<std::string>();
                         });

}  // namespace

TEST_P(GoldenControlRun, whole_run__ends_at_the_references_latents_and_pixels) {
  const json& run = runs().at(GetParam());
  const Picture made =
      picture_of(checkpoint_of(run), request_of(run), open_context("cpu", {.threads = 2}));
  EXPECT_LT(distance("latents", made.latents.span<float>(), run["latents"]), 1e-3);
  EXPECT_LT(distance("pixels", made.pixels.span<float>(), run["pixels"]), 1e-3);
}

// ---- conditions ----------------------------------------------------------------------------

namespace {

LoadedModel controlled_model(size_t networks) {
  const json& run = runs()[0];
  return with_controls(
      denoiser_of(run["unet"]),
      std::vector<LoadedComponent>(networks, component("control_net", run["control"])));
}

}  // namespace

TEST(control, shares_of_the_steps__split_the_run_where_they_begin_and_end) {
  const LoadedModel m = controlled_model(1);
  RunConditions c;
  c.steps.push_back({.end_step = 7, .branches = {{}, {}}});
  c.steps.push_back({.end_step = 20, .branches = {{}, {}}});
  add_controls(c, m, {{.image = pattern(64, 64, 1), .start = 0.25, .end = 0.5}},
               {.sample = {8, 8, 4}, .steps = 20});
  std::vector<int64_t> given;
  for (int64_t step = 1; step <= 20; ++step)
    if (c.at(step, step).values().contains("strength.0")) given.push_back(step);
  EXPECT_EQ(given, (std::vector<int64_t>{6, 7, 8, 9, 10}));
}

TEST(control, network_outside_of_its_share__is_not_evaluated) {
  const LoadedModel m = controlled_model(1);
  Pipeline pipeline(m, open_context("cpu", {.threads = 2}),
                    {.decoder = Decoder{.name = "", .decode = {}}});
  GenerateOptions options{.steps = 4, .sampler = "dpmpp_2m_sde", .dtype = "f32", .guidance = 3};
  const ResolvedRequest r = pipeline.resolve(
      {.classes = {-1}, .size = {.height = 64, .width = 64}, .prompted = true}, options);
  RunInputs inputs;
  RunConditions& c = inputs.conditions;
  c.steps.push_back({.end_step = 4, .branches = {{}, {}}});
  for (NamedTensors& branch : c.steps[0].branches) {
    Tensor text(DType::f32, {1, 77, runs()[0]["unet"]["context"].get<int64_t>()});
    for (float& v : text.span<float>()) v = branch.empty() ? 0.5F : -0.5F;
    branch.emplace("text", text);
  }
  add_controls(c, m, {{.image = pattern(64, 64, 1), .start = 0.25, .end = 0.75}},
               {.sample = {8, 8, 4}, .steps = 4});
  const Tensor switched = pipeline.sample(r, 0, inputs, {}).samples;
  EXPECT_EQ(pipeline.statistics().compiled, 2);
  c = completed(c);  // with strength 0
  const Pipeline::Sampled whole = pipeline.sample(r, 0, inputs, {});
  EXPECT_EQ(whole.evaluations, 4);
  const auto a = switched.span<float>(), b = whole.samples.span<float>();
  for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-4) << i;
}

TEST(control, modes__weigh_features_and_branches_as_a1111_does) {
  const LoadedModel m = controlled_model(1);
  const auto strengths = [&](ControlMode mode, bool negative) {
    RunConditions c;
    add_controls(c, m, {{.image = pattern(64, 64, 1), .strength = 2, .mode = mode}},
                 {.sample = {8, 8, 4}, .steps = 4});
    const auto& values = c.steps[0].branches[negative ? 1 : 0];
    const auto v = values.at("strength.0").span<float>();
    return std::vector<float>(v.begin(), v.end());
  };
  const std::vector<float> soft = strengths(ControlMode::prompt, false);
  EXPECT_FLOAT_EQ(soft[0], 2 * std::pow(0.825f, 12.f));
  EXPECT_FLOAT_EQ(soft[6], 2 * std::pow(0.825f, 6.f));
  EXPECT_EQ(strengths(ControlMode::prompt, true), soft);
  EXPECT_EQ(strengths(ControlMode::control, false), soft);
  EXPECT_EQ(strengths(ControlMode::control, true), std::vector<float>(soft.size()));
}

TEST(control, network_of_another_model__is_refused_with_both_names) {
  const json& run = runs()[4];
  const LoadedComponent xl = component("control_net", run["control"]);
  const std::string error = error_of([&] { with_controls(denoiser_of(runs()[0]["unet"]), {xl}); });
  EXPECT_EQ(error.find("control: network 1, control_net, does not fit the denoiser ldm_unet ("), 0u)
      << error;
}

TEST(control, adapter_of_xl_for_a_denoiser_of_1__is_refused_with_both_names) {
  const LoadedComponent xl = component("t2i_adapter", runs()[7]["adapter"]);
  const std::string error = error_of([&] { with_controls(denoiser_of(runs()[5]["unet"]), {xl}); });
  EXPECT_EQ(error.find("control: network 1, t2i_adapter, does not fit the denoiser ldm_unet ("), 0u)
      << error;
}

TEST(control, adapters_in_files_of_diffusers__are_recognised) {
  for (size_t i = 5; i < 8; ++i) {
    const Component want = component("t2i_adapter", runs()[i]["adapter"]).component;
    nn::FileShapes original, diffusers;
    for (const nn::Weight& w : weights_of(*want.model, want.config)) {
      original[w.name] = nn::file_shape(w);
      diffusers[runs()[i]["names"].at(w.name).get<std::string>()] = nn::file_shape(w);
    }
    for (const nn::FileShapes& file : {original, diffusers}) {
      const auto found = recognise_components(file);
      ASSERT_EQ(found.size(), 1u) << runs()[i]["case"];
      EXPECT_EQ(found[0].config.text(), want.config.text());
      const auto places = found[0].model->places(found[0].config, file);
      for (const nn::Weight& w : weights_of(*want.model, want.config))
        EXPECT_TRUE(file.contains(places ? places(w.name).name : w.name)) << w.name;
    }
  }
}

TEST(control, texts__are_a_kind_a_file_and_numbers) {
  const Folder folder;
  const std::string file = folder / "a:b.png";
  io::write_png(file, pattern(4, 6, 1));
  const ControlInput in = read_control("canny=" + file + ":0.5:0.1:0.9");
  EXPECT_EQ(in.kind, "canny");
  EXPECT_EQ(in.image.shape(), (Shape{4, 6, 3}));
  EXPECT_EQ(in.strength, 0.5);
  EXPECT_EQ(in.start, 0.1);
  EXPECT_EQ(in.end, 0.9);
  EXPECT_EQ(read_control("none=" + file).strength, 1);
  expect_error([&] { read_control("none"); }, "must be KIND[/TASK]=IMAGE[:strength[:start[:end]]]");
}

TEST(control, kinds__that_need_a_network_are_refused_with_advice) {
  const Tensor image = pattern(8, 8, 2);
  const auto at = [](const Tensor& t, size_t i) { return int{t.span<uint8_t>()[i]}; };
  EXPECT_EQ(at(control_image("invert", image), 5), 255 - at(image, 5));
  expect_error([&] { control_image("depth", image); }, "give the finished map as none=IMAGE");
}

TEST(control, wrong_numbers__are_errors) {
  const LoadedModel m = controlled_model(1);
  RunConditions c;
  expect_error(
      [&] {
        add_controls(c, m, {}, {.sample = {8, 8, 4}, .steps = 4});
      },
      "there must be an image for each of the 1 control networks (0)");
  expect_error(
      [&] {
        add_controls(c, m, {{.image = pattern(8, 8, 1), .start = 0.9, .end = 0.1}},
                     {.sample = {8, 8, 4}, .steps = 4});
      },
      "start and end of image number 1 must be shares of the steps");
}

}  // namespace ebb::testing::golden_control_run_test
