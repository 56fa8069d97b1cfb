// Queries for recognise() on the tensors of a file, and matching of presets.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "models/model.h"
#include "nn/file_shapes.h"

namespace ebb::models {

struct Names {
  const nn::FileShapes& shapes;

  bool has(const std::string& name) const { return shapes.contains(name); }
  // Size `dim` of a tensor; 0 if there is no such tensor or dim.
  int64_t size(const std::string& name, int64_t dim) const {
    const auto it = shapes.find(name);
    return it == shapes.end() || dim >= it->second.rank() ? 0 : it->second[dim];
  }
  // How many tensors <first><0, 1, ...><last> there are in a row.
  int64_t count(std::string_view first, std::string_view last) const {
    return nn::count_in_a_row(shapes, first, last);
  }
};

// The sizes of the levels of an EDM network, finest first, by its tensors enc.<r>x<r>_conv and
// enc.<r>x<r>_block0; empty for other networks.
inline std::vector<int64_t> edm_resolutions(const Names& n) {
  std::vector<int64_t> out;
  for (const auto& [name, shape] : n.shapes) {
    const size_t x = name.find('x', 4);
    if (!name.starts_with("enc.") || x == std::string::npos || x > 9) continue;
    const std::string size = name.substr(4, x - 4);
    if (size.empty() || size.find_first_not_of("0123456789") != std::string::npos) continue;
    if (name == str("enc.", size, "x", size, "_conv.weight")) out.push_back(std::stoll(size));
  }
  if (out.size() != 1) return {};
  while (n.has(str("enc.", out.back() / 2, "x", out.back() / 2, "_block0.norm0.weight")))
    out.push_back(out.back() / 2);
  return out;
}

// The preset that is `found` but for what tensors do not tell: dropout, and what untold(config,
// preset) takes over from the preset into the config; `found` itself if there is none.
template <class C>
ModelConfig preset_of(const C& found, const std::vector<Preset>& presets, const auto& untold) {
  for (const Preset& preset : presets) {
    const auto& known = preset.config.as<C>();
    C same = found;
    same.common.dropout = known.common.dropout;
    untold(same, known);
    if (ModelConfig(same) == preset.config) return preset.config;
  }
  return found;
}
template <class C>
ModelConfig preset_of(const C& found, const std::vector<Preset>& presets) {
  return preset_of(found, presets, [](C&, const C&) {});
}

// EDM's files carry the resampling filters as buffers; the graph has them as constants.
inline bool edm_ignored(std::string_view name) { return name.ends_with("resample_filter"); }

}  // namespace ebb::models
