// Files of hashed adapters, by the lists of tensors in tests/golden/adapters.json.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "adapters/adapters.h"
#include "io/safetensors.h"
#include "support/hashed_weights.h"

namespace ebb::testing {

// [name, shape, scale, offset] each.
inline std::vector<io::NamedTensor> adapter_tensors(const nlohmann::json& specs) {
  std::vector<io::NamedTensor> out;
  for (const nlohmann::json& s : specs) {
    const Shape shape(s[1].get<std::vector<int64_t>>());
    const std::string name = s[0];
    out.push_back({name, hashed(name, shape, s[2].get<double>(), s[3].get<double>())});
  }
  return out;
}

inline std::string write_adapter(const std::string& path, const nlohmann::json& golden) {
  std::map<std::string, std::string> metadata;
  if (golden.contains("metadata"))
    metadata = golden["metadata"].get<std::map<std::string, std::string>>();
  io::write_safetensors(path, adapter_tensors(golden["tensors"]), metadata);
  return path;
}

inline adapters::AdapterUse adapter_use(const std::string& path, double strength) {
  return {adapters::AdapterFile::open(path), strength, strength, {}};
}

inline adapters::Network unet_network(const Model& model, const ModelConfig& config,
                                      std::shared_ptr<WeightStore> weights) {
  return {adapters::Network::Part::denoiser, 1, &model, config, std::move(weights)};
}

}  // namespace ebb::testing
