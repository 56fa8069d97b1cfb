// Training steps of a small U-Net against diffusers' network with torch's autograd and AdamW
// (tools/golden/finetune_golden.py): the whole network, and adapters by the formulas of PEFT and
// LyCORIS.
#include <gtest/gtest.h>

#include "adapters/trainable.h"
#include "diffusion/loss.h"
#include "support/golden_file.h"
#include "support/golden_steps.h"
#include "support/ldm_case.h"

namespace ebb {
namespace {

using namespace ebb::testing;
using nlohmann::json;

const json& golden() {
  static const json j = read_golden("finetune");
  return j;
}

class FinetuneCase {
 public:
  explicit FinetuneCase(const json& c)
      : model_(find_component("ldm_unet").model),
        config_(LdmCase::configured(*model_, golden()["config"])) {
    diffusion_.precond = c["prediction"];
    diffusion_.betas = "scaled_linear";
    if (c["zero_snr"]) diffusion_.zero_snr = "comfy";
    if (!c["gamma"].is_null()) {
      diffusion_.weighting = "min_snr";
      diffusion_.min_snr_gamma = c["gamma"];
    }
  }

  Shape images() const { return Shape(golden()["shape"].get<std::vector<int64_t>>()); }

  Graph loss() const {
    Graph g;
    const Precond precond(diffusion_);
    const int64_t n = images()[0];
    NoisyImages in{.images = g.input("images", {DType::f32, images()})};
    in.noise = g.input("noise", {DType::f32, images()});
    in.level = {g.input("sigma", {DType::f32, {n}}), g.input("argument", {DType::f32, {n}}), {}};
    in.conditions["text"] = g.input("text", text_type());
    g.output("loss", denoising_loss(precond, network_of(*model_, config_), in, {}).loss);
    return g;
  }

  NamedTensors inputs() const {
    const Precond precond(diffusion_);
    std::vector<float> sigma, argument;
    for (const int64_t t : golden()["timesteps"]) {
      sigma.push_back(static_cast<float>(precond.table().sigma[static_cast<size_t>(t)]));
      argument.push_back(static_cast<float>(t));
    }
    const auto n = images()[0];
    return {{"images", hashed_input("input.images", images())},
            {"noise", hashed_input("input.noise", images())},
            {"text", hashed_input("input.text", text_type().shape)},
            {"sigma", tensor_of(sigma, {n})},
            {"argument", tensor_of(argument, {n})}};
  }

  const nn::Weights weights() const { return ebb::weights_of(*model_, config_); }

  adapters::TrainableAdapter adapter(const std::string& kind) const {
    return {{adapters::Network::Part::denoiser, 1, model_, config_, nullptr},
            {.kind = kind, .sizes = {.rank = golden()["rank"]}, .alpha = golden()["alpha"]}};
  }

 private:
  Type text_type() const {
    return {DType::f32,
            {images()[0], golden()["tokens"].get<int64_t>(), golden()["config"]["context"]}};
  }
  const Model* model_;
  ModelConfig config_;
  DiffusionConfig diffusion_;
};

class golden_finetune_cases : public ::testing::TestWithParam<const char*> {};

TEST_P(golden_finetune_cases, whole_network__has_torchs_gradients_and_steps) {
  const json& c = golden()["cases"][GetParam()];
  const FinetuneCase run(c);
  const GoldenSteps steps{run.weights(), run.inputs(), golden()["adamw"]};
  expect_gradients(run.loss(), steps, c["whole"]);
  expect_steps(run.loss(), steps, c["whole"]);
}

TEST_P(golden_finetune_cases, adapters__have_the_gradients_and_steps_of_peft_and_lycoris) {
  const json& c = golden()["cases"][GetParam()];
  const FinetuneCase run(c);
  for (const std::string& kind : adapters::trainable_kinds()) {
    if (!c.contains(kind)) continue;
    SCOPED_TRACE(kind);
    const auto adapter = run.adapter(kind);
    const Graph loss = adapter.adapted(run.loss());
    const GoldenSteps steps{adapter.weights(), run.inputs(), golden()["adamw"]};
    expect_gradients(loss, steps, c[kind]);
    expect_steps(loss, steps, c[kind]);
  }
}

TEST(golden_finetune, every_kind_that_can_be_trained__is_recorded) {
  for (const std::string& kind : adapters::trainable_kinds())
    EXPECT_TRUE(golden()["cases"]["eps"].contains(kind)) << kind;
}

INSTANTIATE_TEST_SUITE_P(eps_and_v, golden_finetune_cases,
                         ::testing::Values("eps", "v_min_snr", "v_zero_snr"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace ebb
