// A loss of fine-tuning with text encoders that tools/golden/finetune_text_golden.py recorded, of
// small networks of Stable Diffusion 1 and XL.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "adapters/trainable.h"
#include "diffusion/loss.h"
#include "pipeline/text_in_loss.h"
#include "support/golden_file.h"
#include "support/golden_steps.h"
#include "support/ldm_case.h"

namespace ebb::testing {

inline ModelConfig text_config(const Model& model, const nlohmann::json& fields) {
  ModelConfig out = model.presets.front().config;
  for (const auto& [key, value] : fields.items())
    set_field(find_field(out.fields(), key, model.name),
              value.is_string() ? value.get<std::string>() : value.dump());
  return out;
}

class TextCase {
 public:
  static const nlohmann::json& golden() {
    static const nlohmann::json j = read_golden("finetune_text");
    return j;
  }

  explicit TextCase(const nlohmann::json& c)
      : c_(c),
        model_(find_component("ldm_unet").model),
        config_(LdmCase::configured(*model_, c["config"])) {
    const Model& clip = *find_component("clip_text").model;
    for (const nlohmann::json& text : c["texts"]) {
      const bool last = rules_.size() + 1 == c["texts"].size();
      FamilyText reading{.encoder = "clip_l"};
      reading.layer = c["layer"];
      reading.normed = reading.layer == 1;
      reading.projected = last && c["texts"].size() > 1;
      reading.number = std::ssize(rules_) + 1;
      rules_.push_back({.family = nullptr,
                        .encoder = {Component{&clip, text_config(clip, text), ""}, nullptr},
                        .width = text["width"],
                        .reading = reading});
    }
  }

  Graph loss(int64_t vectors = 0) const {
    DiffusionConfig diffusion;
    diffusion.precond = "eps";
    diffusion.betas = "scaled_linear";
    Graph g;
    const Precond precond(diffusion);
    const Shape images(golden()["shape"].get<std::vector<int64_t>>());
    NoisyImages in{.images = g.input("images", {DType::f32, images})};
    in.noise = g.input("noise", {DType::f32, images});
    in.level = {g.input("sigma", {DType::f32, {images[0]}}),
                g.input("argument", {DType::f32, {images[0]}}),
                {}};
    for (const nn::Condition& c : token_conditions(rules_, vectors))
      in.conditions[c.name] = g.input(c.name, c.type(images[0]));
    if (rules_.size() > 1)
      in.conditions["size"] = g.input("size", {DType::f32, {images[0], std::ssize(c_["sizes"])}});
    const nn::Network network = reading_tokens(network_of(*model_, config_), rules_, vectors);
    g.output("loss", denoising_loss(precond, network, in, {}).loss);
    return with_params(g, [](std::string_view) { return true; });
  }

  NamedTensors inputs() const {
    const Shape images(golden()["shape"].get<std::vector<int64_t>>());
    const int64_t n = images[0];
    DiffusionConfig diffusion;
    diffusion.precond = "eps";
    diffusion.betas = "scaled_linear";
    const Precond precond(diffusion);
    std::vector<float> sigma, argument, sizes;
    for (const int64_t t : golden()["timesteps"]) {
      sigma.push_back(static_cast<float>(precond.table().sigma[static_cast<size_t>(t)]));
      argument.push_back(static_cast<float>(t));
      for (const float v : c_["sizes"]) sizes.push_back(v);
    }
    NamedTensors out{{"images", hashed_input("input.images", images)},
                     {"noise", hashed_input("input.noise", images)},
                     {"sigma", tensor_of(sigma, {n})},
                     {"argument", tensor_of(argument, {n})}};
    std::vector<int64_t> tokens;
    for (const nlohmann::json& row : c_["tokens"])
      for (const int64_t id : row) tokens.push_back(id);
    for (size_t e = 0; e < rules_.size(); ++e) {
      out[token_input(e)] = tensor_of(tokens, {n, std::ssize(tokens) / n});
      out[end_input(e)] = tensor_of(c_["ends"].get<std::vector<int64_t>>(), {n});
    }
    if (rules_.size() > 1) out["size"] = tensor_of(sizes, {n, std::ssize(c_["sizes"])});
    return out;
  }

  // The inputs with vector 1 in place of a token, in each encoder, and another token below it.
  NamedTensors inputs_with_vector(int64_t token) const {
    NamedTensors out = inputs();
    for (size_t e = 0; e < rules_.size(); ++e) {
      const Tensor ids = out.at(token_input(e)).clone(), rows(DType::i64, ids.shape());
      for (size_t i = 0; i < ids.span<int64_t>().size(); ++i)
        if (int64_t& id = ids.span<int64_t>()[i]; id == token) id = 0, rows.span<int64_t>()[i] = 1;
      out[token_input(e)] = ids;
      out[vector_input(e)] = rows;
    }
    return out;
  }
  size_t encoders() const { return rules_.size(); }

  // The U-Net's weights, and of the encoders' those that it reads.
  nn::Weights weights() const {
    nn::Weights out = ebb::weights_of(*model_, config_);
    for (size_t e = 0; e < rules_.size(); ++e)
      for (nn::Weight w : weights_read(rules_[e])) {
        w.name = text_prefix(e) + w.name;
        out.push_back(w);
      }
    return out;
  }

  adapters::TrainableAdapter adapter(const std::string& kind, bool decomposed = false) const {
    using Part = adapters::Network::Part;
    std::vector<adapters::AdaptedNetwork> networks;
    networks.push_back({.network = {Part::denoiser, 1, model_, config_, nullptr},
                        .targets = {"attentions"},
                        .weights = ebb::weights_of(*model_, config_)});
    for (size_t e = 0; e < rules_.size(); ++e) {
      const Component& c = rules_[e].encoder.component;
      networks.push_back(
          {.network = {Part::text, rules_[e].reading.number, c.model, c.config, nullptr},
           .targets = {"self_attn", "mlp"},
           .prefix = text_prefix(e),
           .weights = weights_read(rules_[e])});
    }
    return {std::move(networks),
            {.kind = kind,
             .sizes = {.rank = golden()["rank"]},
             .alpha = golden()["alpha"],
             .decomposed = decomposed}};
  }

  GoldenSteps steps(const nn::Weights& weights) const {
    GoldenSteps out{weights, inputs(), golden()["adamw"]};
    for (const nn::Weight& w : weights)
      if (w.name.starts_with("text_encoder") || w.name.starts_with("adapter.text_encoder"))
        out.rates[w.name] = golden()["text_rate"];
    return out;
  }

 private:
  const nlohmann::json& c_;
  const Model* model_;
  ModelConfig config_;
  std::vector<EncoderRule> rules_;
};

}  // namespace ebb::testing
