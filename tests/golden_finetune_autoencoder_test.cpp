// Training steps of a small autoencoder against diffusers' network with torch's autograd and AdamW
// (tools/golden/finetune_autoencoder_golden.py).
#include <gtest/gtest.h>

#include <cmath>

#include "pipeline/train_autoencoder.h"
#include "support/golden_file.h"
#include "support/golden_steps.h"
#include "support/ldm_case.h"

namespace ebb::golden_finetune_autoencoder_test {
namespace {

using namespace ebb::testing;

TEST(golden_finetune_autoencoder, whole__has_torchs_gradients_and_steps) {
  const nlohmann::json golden = read_golden("finetune_autoencoder");
  const Model& model = *find_component("autoencoder_kl").model;
  const Component c{&model, LdmCase::configured(model, golden["config"]), ""};
  const Shape images(golden["shape"].get<std::vector<int64_t>>());
  const Shape latents(golden["latents"].get<std::vector<int64_t>>());
  Graph g;
  const auto noise = [&](const Shape& shape) {
    EXPECT_EQ(shape, latents);
    return g.input("noise", {DType::f32, shape});
  };
  const Value x = g.input("images", {DType::f32, images});
  g.output("loss", autoencoder_loss(c, x, noise, golden["kl_weight"]).loss);
  const GoldenSteps steps{weights_of(model, c.config),
                          {{"images", hashed_input("input.images", images)},
                           {"noise", hashed_input("input.noise", latents)}},
                          golden["adamw"]};
  expect_gradients(g, steps, golden["whole"]);
  expect_steps(g, steps, golden["whole"]);
}

TEST(train_autoencoder, scaled_latents__are_decoded_as_before) {
  const Model& model = *find_component("autoencoder_kl").model;
  const ModelConfig config =
      LdmCase::configured(model, read_golden("finetune_autoencoder")["config"]);
  NamedTensors weights;
  for (const nn::Weight& w : weights_of(model, config)) weights["x." + w.name] = hashed_weight(w);
  const auto run = [&](const NamedTensors& of, const EntryCall& call, const std::string& input,
                       const Tensor& value) {
    Plan plan(entry_graph(model, config, call), open_context("cpu", {.threads = 1}));
    for (const nn::Weight& w : weights_of(model, config))
      if (plan.graph().find_source(w.name)) plan.bind(w.name, of.at("x." + w.name));
    return plan.run({{input, value}});
  };
  const EntryCall encode{"encode", {{"pixels", {1, 8, 8, 3}}}, {"mean", "logvar"}};
  const EntryCall decode{"decode", {{"latents", {1, 4, 4, 4}}}, {"pixels"}};
  const Tensor pixels = hashed_input("pixels", {1, 8, 8, 3});
  const NamedTensors scaled = with_scaled_latents(weights, "x.", 3);
  const NamedTensors a = run(weights, encode, "pixels", pixels);
  const NamedTensors b = run(scaled, encode, "pixels", pixels);
  for (size_t i = 0; i < a.at("mean").span<float>().size(); ++i) {
    EXPECT_NEAR(b.at("mean").span<float>()[i], 3 * a.at("mean").span<float>()[i], 1e-4);
    EXPECT_NEAR(b.at("logvar").span<float>()[i],
                a.at("logvar").span<float>()[i] + 2 * std::log(3.F), 1e-4);
  }
  const Tensor one = run(weights, decode, "latents", a.at("mean")).at("pixels");
  const Tensor other = run(scaled, decode, "latents", b.at("mean")).at("pixels");
  for (size_t i = 0; i < one.span<float>().size(); ++i)
    EXPECT_NEAR(one.span<float>()[i], other.span<float>()[i], 1e-3);
  EXPECT_THROW(with_scaled_latents({}, "x.", 3), Error);
}

}  // namespace
}  // namespace ebb::golden_finetune_autoencoder_test
