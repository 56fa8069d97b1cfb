// A case of tests/golden/ldm: a U-Net of latent diffusion, or a control network, its inputs and
// expected outputs.
#pragma once

#include <algorithm>
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

inline const std::vector<std::string>& control_cases() {
  static const std::vector<std::string> names = {"control_sd1", "control_sdxl"};
  return names;
}

struct LdmCase {
  nlohmann::json golden;
  const Model* model = nullptr;
  ModelConfig config;

  explicit LdmCase(const std::string& name)
      : golden(read_golden("ldm/" + name)),
        model(find_component(golden["model"].get<std::string>()).model),
        config(configured(*model, golden["config"])) {}

  static ModelConfig configured(const Model& model, const nlohmann::json& fields) {
    ModelConfig out = model.presets.front().config;
    for (const auto& [key, value] : fields.items())
      set_field(find_field(out.fields(), key, model.name), value.dump());
    return out;
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
    if (model->kind == ModelKind::control_network) out["strength"] = strengths();
    return out;
  }
  // The network with these inputs, output F; of a control network residuals, by name.
  Graph graph() const {
    Graph g;
    if (model->kind == ModelKind::control_network) {
      for (const auto& [name, v] :
           model->entries[0].build(nn::Params(g), config, declared(g, inputs())))
        g.output(name, v);
      return g;
    }
    nn::NetworkInputs in{.x = {}, .noise = {}, .conditions = declared(g, inputs()), .random = {}};
    in.x = take(in.conditions, "x");
    in.noise = take(in.conditions, "noise");
    g.output("F", network_of(*model, config)(g, in));
    return g;
  }

  static nn::ValuesByName declared(Graph& g, const NamedTensors& inputs) {
    nn::ValuesByName out;
    for (const auto& [name, t] : inputs) out[name] = g.input(name, t.type());
    return out;
  }
  static Value take(nn::ValuesByName& values, const std::string& name) {
    return values.extract(name).mapped();
  }

 private:
  // One strength for all residuals.
  Tensor strengths() const {
    const auto count = static_cast<int64_t>(golden["residuals"].size());
    const int64_t batch = shape_of(golden["inputs"]["x"])[0];
    Tensor out(DType::f32, {batch, count});
    std::ranges::fill(out.span<float>(), golden["strength"].get<float>());
    return out;
  }
};

}  // namespace ebb::testing
