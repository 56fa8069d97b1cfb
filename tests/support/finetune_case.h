// A loss of fine-tuning that tools/golden/finetune_golden.py recorded, of a small U-Net of Stable
// Diffusion 1.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "adapters/trainable.h"
#include "diffusion/loss.h"
#include "support/golden_file.h"
#include "support/hashed_weights.h"
#include "support/ldm_case.h"

namespace ebb::testing {

class FinetuneCase {
 public:
  static const nlohmann::json& golden() {
    static const nlohmann::json j = read_golden("finetune");
    return j;
  }

  explicit FinetuneCase(const nlohmann::json& c)
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

  adapters::TrainableAdapter adapter(const std::string& kind, bool decomposed = false,
                                     const std::string& target = "attentions") const {
    return {{adapters::Network::Part::denoiser, 1, model_, config_, nullptr},
            {.kind = kind,
             .sizes = {.rank = golden()["rank"]},
             .alpha = golden()["alpha"],
             .decomposed = decomposed},
            {target}};
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

}  // namespace ebb::testing
