// Control networks against diffusers: their residuals, and what the U-Net makes of them
// (tools/golden/ldm_golden.py).
#include <gtest/gtest.h>

#include "nn/ldm_control.h"
#include "passes/precision/mixed_precision.h"
#include "support/cpu.h"
#include "support/files.h"
#include "support/golden_distance.h"
#include "support/ldm_case.h"

namespace ebb::testing::golden_control_test {
namespace {

constexpr double promise = 1e-4;
constexpr const char* prefix = "control_model";

double allowed(const nlohmann::json& golden) {
  return std::max(promise, 10 * golden["f64_rel_error"].get<double>());
}

using testing::cpu;

class GoldenControl : public ::testing::TestWithParam<std::string> {
 protected:
  LdmCase c_{GetParam()};
  const Model& unet_ = *find_model("ldm_unet").model;
  ModelConfig unet_config_ = LdmCase::configured(unet_, c_.golden["unet"]);

  // A control network with names of its own.
  nn::ControlNetwork control(const std::string& prefix) const {
    return [prefix, this](Graph& g, const nn::ValuesByName& in) {
      return c_.model->entries[0].build(nn::Params(g, prefix), c_.config, in);
    };
  }
  // With control networks of these prefixes, each with the case's hint and strength.
  NamedTensors run(const std::vector<std::string>& prefixes, DType dtype = DType::f32) const;
};

NamedTensors GoldenControl::run(const std::vector<std::string>& prefixes, DType dtype) const {
  NamedTensors inputs = c_.inputs();
  const Tensor hint = inputs.extract("hint").mapped(),
               strength = inputs.extract("strength").mapped();
  std::vector<nn::ControlNetwork> controls;
  for (size_t k = 0; k < prefixes.size(); ++k) {
    inputs[str("hint.", k)] = hint;
    inputs[str("strength.", k)] = strength;
    controls.push_back(control(prefixes[k]));
  }
  Graph g;
  nn::NetworkInputs in{
      .x = {}, .noise = {}, .conditions = LdmCase::declared(g, inputs), .random = {}};
  in.x = LdmCase::take(in.conditions, "x");
  in.noise = LdmCase::take(in.conditions, "noise");
  g.output("F", nn::controlled(network_of(unet_, unet_config_), controls)(g, in));
  Plan plan(mixed_precision(g, dtype), cpu());
  for (const nn::Weight& w : weights_of(unet_, unet_config_)) plan.bind(w.name, hashed_weight(w));
  for (const std::string& p : prefixes)
    for (const nn::Weight& w : weights_of(*c_.model, c_.config))
      plan.bind(p + "." + w.name, hashed_weight(w));
  return plan.run(inputs);
}

INSTANTIATE_TEST_SUITE_P(cpu, GoldenControl, ::testing::ValuesIn(control_cases()),
                         [](const auto& info) { return info.param; });

double relative(std::span<const float> have, std::span<const float> want) {
  double error = 0, norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    const double w{want[i]}, d = double{have[i]} - w;
    error += d * d, norm += w * w;
  }
  return std::sqrt(error / norm);
}

}  // namespace

TEST_P(GoldenControl, residuals__are_those_of_diffusers_in_f32_and_bf16) {
  std::map<DType, NamedTensors> out;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    Plan plan(mixed_precision(c_.graph(), dtype), cpu());
    for (const nn::Weight& w : weights_of(*c_.model, c_.config))
      plan.bind(w.name, hashed_weight(w));
    out[dtype] = plan.run(c_.inputs());
  }
  const nlohmann::json& want = c_.golden["residuals"];
  EXPECT_EQ(out[DType::f32].size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    const std::string name = nn::control_name(static_cast<int64_t>(i));
    const Tensor& have = out[DType::f32].at(name);
    EXPECT_EQ(have.shape(), LdmCase::shape_of(want[i])) << name;
    EXPECT_LE(distance(name, have.span<float>(), want[i]), allowed(want[i])) << name;
    EXPECT_LE(relative(out[DType::bf16].at(name).to(DType::f32).span<float>(), have.span<float>()),
              2 * want[i]["bf16_rel_error"].get<double>())
        << name;
  }
}

TEST_P(GoldenControl, controlled_network__is_that_of_diffusers) {
  const Tensor f = run({prefix}).at("F");
  const nlohmann::json& want = c_.golden["output"];
  EXPECT_LE(distance("output", f.span<float>(), want), allowed(want));
  const Tensor low = run({prefix}, DType::bf16).at("F").to(DType::f32);
  EXPECT_LE(relative(low.span<float>(), f.span<float>()), 2 * want["bf16_rel_error"].get<double>());
}

// Two of half the strength are one: residuals are summed.
TEST_P(GoldenControl, several_control_networks__add_up) {
  const Tensor one = run({"a"}).at("F");
  c_.golden["strength"] = 0.5 * c_.golden["strength"].get<double>();
  const Tensor two = run({"a", "b"}).at("F"), half = run({"a"}).at("F");
  EXPECT_LE(relative(two.span<float>(), one.span<float>()), promise);
  EXPECT_GT(relative(half.span<float>(), one.span<float>()), 10 * promise);
}

TEST(control_net, hint_of_another_size__is_an_error) {
  const LdmCase c("control_sd1");
  NamedTensors inputs = c.inputs();
  inputs["hint"] = Tensor(DType::f32, {2, 16, 30, 3});
  expect_error(
      [&] {
        Graph g;
        c.model->entries[0].build(nn::Params(g), c.config, LdmCase::declared(g, inputs));
      },
      "control network: the sides of the hint must be 2 times those of the noisy image");
}

TEST(control_net, published_presets__are_recognised_by_their_tensors) {
  for (const Preset& p : find_component("control_net").model->presets) {
    const NamedModel m = find_component(p.name);
    nn::FileShapes file;
    for (const nn::Weight& w : weights_of(*m.model, m.config))
      file[str(prefix, ".", w.name)] = nn::file_shape(w);
    const auto found = recognise_components(file);
    ASSERT_EQ(found.size(), 1u) << p.name;
    EXPECT_EQ(found[0].prefix, str(prefix, ".")) << p.name;
    EXPECT_EQ(found[0].config.text(), p.config.text()) << p.name;
    EXPECT_EQ(found[0].model->guessed(found[0].config), "") << p.name;
  }
}

}  // namespace ebb::testing::golden_control_test
