// A case of tools/golden/component_golden.py: a text encoder or an autoencoder.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/model.h"
#include "pipeline/component.h"
#include "support/golden_file.h"
#include "support/hashed_weights.h"

namespace ebb::testing {

struct GoldenComponent {
  nlohmann::json golden;
  Component component;

  explicit GoldenComponent(const std::string& name)
      : golden(read_golden(name)),
        component(of(find_component(golden["model"].get<std::string>()))) {
    const auto fields = component.config.fields();
    for (const auto& [key, value] : golden["config"].items())
      set_field(find_field(fields, key, name),
                value.is_string() ? value.get<std::string>() : value.dump());
  }
  static Component of(const NamedModel& m) { return {m.model, m.config, ""}; }

  nn::Weights weights() const { return weights_of(*component.model, component.config); }
  std::shared_ptr<WeightStore> store() const {
    WeightStore::Weights out;
    for (const nn::Weight& w : weights()) out.emplace(w.name, stored_tensor(hashed_weight(w)));
    return std::make_shared<WeightStore>(std::move(out));
  }
};

inline Tensor input_of(const nlohmann::json& spec) {
  if (spec.contains("hash"))
    return hashed_input(spec["hash"].get<std::string>(),
                        Shape(spec["shape"].get<std::vector<int64_t>>()));
  const nlohmann::json& ids = spec["ids"];
  const auto rows = static_cast<int64_t>(ids.size());
  if (!ids[0].is_array()) return tensor_of(ids.get<std::vector<int64_t>>(), {rows});
  std::vector<int64_t> all;
  for (const nlohmann::json& row : ids)
    for (const nlohmann::json& id : row) all.push_back(id);
  return tensor_of(all, {rows, static_cast<int64_t>(all.size()) / rows});
}

struct Evaluated {
  NamedTensors inputs;
  EntryCall call;
};
inline Evaluated call_of(const nlohmann::json& golden) {
  Evaluated out;
  out.call.entry = golden["entry"];
  for (const auto& [name, spec] : golden["inputs"].items()) {
    out.inputs[name] = input_of(spec);
    out.call.inputs[name] = out.inputs[name].shape();
  }
  for (const auto& [name, spec] : golden["outputs"].items()) out.call.outputs.push_back(name);
  return out;
}

}  // namespace ebb::testing
