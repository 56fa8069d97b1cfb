// A network case of tests/golden: its network, inputs and expected numbers.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/model.h"
#include "support/golden_file.h"
#include "support/hashed_weights.h"

namespace ebb::testing {

inline const std::vector<std::string>& golden_network_cases() {
  static const std::vector<std::string> names = {
      "cs179",           "dit_p2",          "dit_p4",
      "adm_full",        "adm_plain",       "adm_pool",
      "songunet_ddpmpp", "songunet_ncsnpp", "songunet_residual3",
      "songunet_skip3",  "dhariwal",        "dhariwal_two_heads"};
  return names;
}

// The references' names of config fields, where ours differ.
inline std::string our_field(const std::string& name) {
  static const std::map<std::string, std::string> ours = {
      {"img_resolution", "image_size"}, {"input_size", "image_size"},
      {"num_classes", "classes"},       {"label_dim", "classes"},
      {"augment_dim", "augment"},       {"attn_resolutions", "attention_resolutions"},
      {"embedding_type", "embedding"},  {"encoder_type", "encoder"},
      {"decoder_type", "decoder"},      {"patch_size", "patch"},
      {"hidden_size", "width"}};
  const auto it = ours.find(name);
  return it == ours.end() ? name : it->second;
}

struct GoldenCase {
  nlohmann::json golden;
  const Model* model = nullptr;
  ModelConfig config;

  explicit GoldenCase(const std::string& name)
      : golden(read_golden(name)),
        model(find_model(golden["model"].get<std::string>()).model),
        config(model->presets.front().config) {
    const nlohmann::json& c = golden["config"];
    auto fields = config.fields();
    for (const auto& [key, value] : c.items()) {
      std::string field = our_field(key);
      std::string text = value.is_string() ? value.get<std::string>() : value.dump();
      if (key == "num_heads" && model->name == "dit") field = "heads";
      if (key == "out_channels") {
        if (model->name != "adm") continue;
        field = "learn_sigma";
        text = value.get<int64_t>() == 2 * c["in_channels"].get<int64_t>() ? "true" : "false";
      }
      set_field(find_field(fields, field, name), text);
    }
  }

  // Values of the sources that network_inputs declares.
  std::map<std::string, Tensor> inputs() const {
    const nlohmann::json& in = golden["inputs"];
    std::map<std::string, Tensor> out;
    out["x"] = hashed_input("input.x", shape_of(in["x"]));
    const auto noise =
        in[in.contains("t") ? "t" : "noise_labels"]["values"].get<std::vector<float>>();
    out["noise"] = tensor_of(noise, {static_cast<int64_t>(noise.size())});
    for (const char* key : {"y", "class_labels"}) {
      if (!in.contains(key)) continue;
      const auto ids = in[key]["values"].get<std::vector<int64_t>>();
      out["class"] = tensor_of(ids, {static_cast<int64_t>(ids.size())});
    }
    if (in.contains("augment_labels"))
      out["augment"] = hashed_input("input.augment_labels", shape_of(in["augment_labels"]));
    return out;
  }
  Tensor target() const {
    return hashed_input("input.target", shape_of(golden["inputs"]["target"]));
  }

  static Shape shape_of(const nlohmann::json& entry) {
    return Shape(entry["shape"].get<std::vector<int64_t>>());
  }
};

}  // namespace ebb::testing
