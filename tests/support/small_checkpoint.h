// Components of checkpoints with hashed weights, from the configs that golden files record.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "nn/storage.h"
#include "pipeline/checkpoint_parts.h"
#include "pipeline/picture_dialect.h"
#include "pipeline/text_stage.h"
#include "pipeline/text_to_image.h"
#include "support/golden_file.h"

namespace ebb::testing {

inline std::shared_ptr<WeightStore> hashed_store(const Model& model, const ModelConfig& config) {
  WeightStore::Weights out;
  for (const nn::Weight& w : weights_of(model, config))
    out.emplace(w.name, stored_tensor(hashed_weight(w)));
  return std::make_shared<WeightStore>(std::move(out));
}

// The same as files have it, for what changes weights: adapters.
inline std::shared_ptr<WeightStore> hashed_file_store(const Model& model,
                                                      const ModelConfig& config) {
  WeightStore::Weights out;
  for (const nn::Weight& w : weights_of(model, config)) {
    StoredWeight stored = stored_tensor(hashed_file_tensor(w.name, nn::file_shape(w)));
    stored.decode = [w](Value v) { return nn::decode(w, v); };
    out.emplace(w.name, std::move(stored));
  }
  return std::make_shared<WeightStore>(std::move(out));
}

inline ModelConfig config_of(const Model& model, const nlohmann::json& values) {
  ModelConfig config = model.presets[0].config;
  const auto fields = config.fields();
  for (const auto& [key, value] : values.items())
    set_field(find_field(fields, key, model.name),
              value.is_string() ? value.get<std::string>() : value.dump());
  return config;
}

inline LoadedComponent component(const std::string& name, const nlohmann::json& values) {
  const NamedModel m = find_component(name);
  const Component c{m.model, config_of(*m.model, values), ""};
  return {c, hashed_store(*c.model, c.config)};
}

inline LoadedModel denoiser_of(const nlohmann::json& values) {
  const Model& m = *find_component("ldm_unet").model;
  const ModelConfig config = config_of(m, values);
  return {.model = &m,
          .config = config,
          .diffusion = usual_diffusion(m, config),
          .class_names = {},
          .weights = hashed_store(m, config)};
}

// The checkpoint of a run of tests/golden/text_to_image.json.
inline CheckpointParts small_checkpoint(const nlohmann::json& run) {
  CheckpointParts out{.denoiser = denoiser_of(run["unet"]),
                      .text_encoders = {},
                      .autoencoder = component("autoencoder_kl", run["autoencoder"]),
                      .tokenizer = ""};
  for (const auto& text : run["texts"]) out.text_encoders.push_back(component("clip_text", text));
  return out;
}

// The request that such a run records; diffusers' where it names no dialect.
inline TextToImageRequest recorded_request(const nlohmann::json& run) {
  const std::string dialect = run.value("dialect", "diffusers");
  return {.prompt = run["prompt"],
          .negative = run["negative"],
          .syntax = picture_dialect(dialect).syntax,
          .clip_skip = run.value("clip_skip", 0),
          .size = {run["height"].get<int64_t>(), run["width"].get<int64_t>()},
          .options = {.steps = run["steps"],
                      .sampler = run["sampler"],
                      .schedule = run["schedule"],
                      .dtype = "f32",
                      .seed = DrawableSeed(run["seed"].get<uint64_t>()),
                      .guidance = run["guidance"],
                      .schedule_options = run.value("schedule_options", ""),
                      .dialect = dialect,
                      .noise = run.value("noise", "torch_cpu")}};
}

}  // namespace ebb::testing
