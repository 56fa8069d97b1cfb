// Training steps of a small autoencoder and a discriminator beside it against diffusers' network
// and pix2pix's discriminator with torch's autograd and AdamW
// (tools/golden/finetune_discriminator_golden.py).
#include <gtest/gtest.h>

#include <algorithm>

#include "nn/patch_discriminator.h"
#include "pipeline/train_autoencoder.h"
#include "support/golden_file.h"
#include "support/golden_steps.h"
#include "support/ldm_case.h"

namespace ebb::golden_finetune_discriminator_test {
namespace {

using namespace ebb::testing;

struct Case {
  explicit Case(int64_t start = 0)
      : golden(read_golden("finetune_discriminator")),
        component{&model, LdmCase::configured(model, golden["config"]), ""},
        adversary{golden["disc_weight"], start, golden["channels"]} {}

  // With the inputs images, noise and step.
  Graph loss(bool alone = false) const {
    Graph g;
    const auto noise = [&](const Shape& shape) { return g.input("noise", {DType::f32, shape}); };
    const Value x = g.input("images", {DType::f32, shape("shape")});
    g.input("step", {DType::i64, {}});
    const AutoencoderLoss loss = autoencoder_loss(component, x, noise, golden["kl_weight"]);
    g.output("loss", loss.loss);
    if (alone) return g;
    g.output("l1", loss.l1);
    g.output("made", loss.made);
    return with_adversary(g, adversary, {"made", "l1", std::string(last_layer)});
  }
  // At a step of the run.
  GoldenSteps steps(int64_t step = 0) const {
    GoldenSteps out{weights_of(model, component.config),
                    {{"images", hashed_input("input.images", shape("shape"))},
                     {"noise", hashed_input("input.noise", shape("latents"))},
                     {"step", scalar_tensor(step)}},
                    golden["adamw"]};
    for (const nn::Weight& w : weights_of(adversary, 3)) {
      out.rates[w.name] = golden["rate"];
      out.undecayed.insert(w.name);
      out.weights.push_back(w);
    }
    return out;
  }
  Shape shape(const char* of) const { return Shape(golden[of].get<std::vector<int64_t>>()); }

  nlohmann::json golden;
  const Model& model = *find_component("autoencoder_kl").model;
  Component component;
  train::Adversary adversary;
};

NamedTensors gradients_of(const Graph& loss, const GoldenSteps& of) {
  std::vector<std::string> names;
  for (const nn::Weight& w : of.weights)
    if (loss.find_source(w.name)) names.push_back(w.name);
  Plan plan(gradients(loss, "loss", names), open_context("cpu", {.threads = 1}));
  for (const nn::Weight& w : of.weights)
    if (loss.find_source(w.name)) plan.bind(w.name, hashed_weight(w));
  NamedTensors in = of.inputs;
  std::erase_if(in, [&](const auto& one) { return !loss.find_source(one.first); });
  return plan.run(in);
}

TEST(golden_finetune_discriminator, both_networks__have_torchs_gradients_and_steps) {
  const Case c;
  const Graph loss = c.loss();
  expect_gradients(loss, c.steps(), c.golden["whole"]);
  expect_steps(loss, c.steps(), c.golden["whole"]);
  const NamedTensors out = gradients_of(loss, c.steps());
  for (const auto& [name, want] : c.golden["told"][0].items())
    EXPECT_NEAR(out.at("told." + name).span<float>()[0], want.get<double>(), 1e-5) << name;
}

TEST(adversary, steps_before_it_starts__have_the_gradients_of_the_loss_alone) {
  const Case c(3);
  const NamedTensors alone = gradients_of(c.loss(true), c.steps()),
                     before = gradients_of(c.loss(), c.steps(2)),
                     from = gradients_of(c.loss(), c.steps(3));
  const auto number = [](const NamedTensors& of, const char* name) {
    return of.at(name).span<float>()[0];
  };
  EXPECT_EQ(number(before, "told.gan_weight"), 0);
  EXPECT_NEAR(number(from, "told.gan_weight"), c.golden["told"][0]["gan_weight"].get<double>(),
              1e-5);
  EXPECT_EQ(number(before, "loss"), number(alone, "loss"));
  EXPECT_EQ(number(before, "loss"), number(from, "loss"));
  for (const nn::Weight& w : weights_of(c.model, c.component.config)) {
    const auto a = alone.at("grad." + w.name).span<float>(),
               b = before.at("grad." + w.name).span<float>();
    for (size_t i = 0; i < a.size(); ++i) ASSERT_NEAR(a[i], b[i], 1e-6) << w.name;
  }
  for (const nn::Weight& w : weights_of(c.adversary, 3)) {
    const auto all = [&](const NamedTensors& of, auto&& holds) {
      return std::ranges::all_of(of.at("grad." + w.name).span<float>(), holds);
    };
    EXPECT_TRUE(all(before, [](float v) { return v == 0; })) << w.name;
    const bool cancels = w.name == "discriminator.4.conv.bias";  // of both halves of the hinge
    EXPECT_TRUE(cancels || !all(from, [](float v) { return v == 0; })) << w.name;
  }
}

TEST(adversary, made_pictures__are_judged_once) {
  const Case c;
  const Plan plan(train::train_step(c.loss(), {}), open_context("cpu", {.threads = 1}));
  int64_t convolutions = 0;
  for (const Node& n : plan.graph().nodes())
    convolutions += n.op->name == "conv2d" && n.at.starts_with("discriminator");
  EXPECT_EQ(convolutions, 2 * 5);  // of real and of made pictures
}

TEST(adversary, picture_without_a_patch__is_an_error) {
  Graph g;
  const auto scores = [&](int64_t height, int64_t width) {
    const Value x = g.input(g.fresh_name("x"), {DType::f32, {2, height, width, 3}});
    return nn::patch_discriminator(nn::Params(g, "d"), x, 16).shape();
  };
  EXPECT_EQ(scores(256, 128), (Shape{2, 30, 14, 1}));
  EXPECT_EQ(scores(24, 24), (Shape{2, 1, 1, 1}));
  EXPECT_THROW(scores(23, 24), Error);
}

}  // namespace
}  // namespace ebb::golden_finetune_discriminator_test
