// A case of tests/golden/ldm: a U-Net of latent diffusion, its inputs and expected output.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/model.h"
#include "runtime/plan.h"
#include "support/golden_file.h"
#include "support/hashed_weights.h"

namespace ebb::testing {

inline const std::vector<std::string>& ldm_cases() {
  static const std::vector<std::string> names = {"ldm_sd1",      "ldm_sd2_inpaint", "ldm_ip2p_odd",
                                                 "ldm_sdxl_lcm", "ldm_refiner",     "ldm_ssd1b",
                                                 "ldm_no_middle"};
  return names;
}

struct LdmCase {
  nlohmann::json golden;
  const Model* model = nullptr;
  ModelConfig config;

  explicit LdmCase(const std::string& name)
      : golden(read_golden("ldm/" + name)),
        model(find_model(golden["model"].get<std::string>()).model),
        config(model->presets.front().config) {
    const auto fields = config.fields();
    for (const auto& [key, value] : golden["config"].items())
      set_field(find_field(fields, key, name), value.dump());
  }

  static Shape shape_of(const nlohmann::json& entry) {
    return Shape(entry["shape"].get<std::vector<int64_t>>());
  }
  // Of all inputs, under their names.
  NamedTensors inputs() const {
    NamedTensors out;
    for (const auto& [name, in] : golden["inputs"].items())
      out[name] = in.contains("hash")
                      ? hashed_input(in["hash"].get<std::string>(), shape_of(in))
                      : tensor_of(in["values"].get<std::vector<float>>(), shape_of(in));
    return out;
  }
  // The network with these inputs, output F.
  Graph graph() const {
    Graph g;
    nn::NetworkInputs in;
    for (const auto& [name, entry] : golden["inputs"].items()) {
      const Value v = g.input(name, {DType::f32, shape_of(entry)});
      if (name == "x")
        in.x = v;
      else if (name == "noise")
        in.noise = v;
      else
        in.conditions[name] = v;
    }
    g.output("F", network_of(*model, config)(g, in));
    return g;
  }
};

}  // namespace ebb::testing
