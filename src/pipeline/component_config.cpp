#include "pipeline/component_config.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/error.h"
#include "models/family.h"
#include "pipeline/folder_json.h"

namespace ebb {
namespace {

using nlohmann::json;

void set(ModelConfig& config, const char* field, const std::string& text) {
  const std::vector<Field> fields = config.fields();
  set_field(find_field(fields, field, "config"), text);
}

// One number for all levels, or one each.
std::vector<int64_t> numbers(const json& v, size_t count, const std::string& path) {
  std::vector<int64_t> out;
  if (v.is_number_integer()) out.assign(count, v.get<int64_t>());
  if (v.is_array())
    for (const json& n : v)
      if (n.is_number_integer()) out.push_back(n.get<int64_t>());
  require(out.size() == count && std::ranges::all_of(out, [](int64_t n) { return n > 0; }),
          "config: must have a number of heads for each of ", count, " levels (", v.dump(), ")  ",
          path);
  return out;
}

bool all_equal(const std::vector<int64_t>& v) {
  return std::ranges::all_of(v, [&](int64_t n) { return n == v[0]; });
}

// A number, or a list of height and width.
void take_side(const json& j, ModelConfig& config) {
  const auto said = j.find("sample_size");
  const Family* family = find_family(config);
  if (said == j.end() || !family) return;
  const bool square = said->is_array() && said->size() == 2 && said->front() == said->back();
  const json& side = square ? said->front() : *said;
  if (side.is_number_integer() && plausible_side(*family, side.get<int64_t>()))
    set(config, "image_size", str(side.get<int64_t>()));
}

bool take_unet(const json& j, ModelConfig& config, const std::string& path) {
  take_side(j, config);
  const auto said = [&](const char* key) { return j.contains(key) && !j[key].is_null(); };
  const char* const key =
      said("num_attention_heads") ? "num_attention_heads" : "attention_head_dim";
  if (!said(key) || !said("block_out_channels")) return false;
  const json& channels_of = j["block_out_channels"];
  require(channels_of.is_array() && !channels_of.empty(),
          "config: block_out_channels must be a list  ", path);
  const std::vector<int64_t> channels = numbers(channels_of, channels_of.size(), path),
                             heads = numbers(j[key], channels.size(), path);
  std::vector<int64_t> each;  // channels a head
  for (size_t i = 0; i < heads.size(); ++i) {
    require(channels[i] % heads[i] == 0, "config: ", heads[i], " heads must divide ", channels[i],
            " channels  ", path);
    each.push_back(channels[i] / heads[i]);
  }
  require(all_equal(heads) || all_equal(each),
          "config: heads must be as many in all levels, or as wide (", j[key].dump(), ")  ", path);
  set(config, "num_heads", str(all_equal(heads) ? heads[0] : 0));
  set(config, "num_head_channels", str(all_equal(heads) ? 0 : each[0]));
  return true;
}

bool take_text(const json& j, ModelConfig& config, const std::string& path) {
  const auto heads = j.find("num_attention_heads");
  const bool says = heads != j.end() && !heads->is_null();
  if (says) set(config, "heads", str(numbers(*heads, 1, path)[0]));
  const auto act = j.find("hidden_act");
  if (act == j.end() || !act->is_string()) return says;
  const std::string name = act->get<std::string>();
  require(name == "quick_gelu" || name == "gelu",
          "config: hidden_act must be quick_gelu or gelu ('", name, "')  ", path);
  set(config, "activation", name);
  return says;
}

}  // namespace

bool take_config(const Model& model, ModelConfig& config, const std::string& weights) {
  const bool unet = model.name == "ldm_unet";
  const std::filesystem::path path = std::filesystem::path(weights).parent_path() / "config.json";
  if ((!unet && model.name != "clip_text") || !std::filesystem::is_regular_file(path)) return false;
  const json j = read_folder_json(path.string(), "config");
  const bool says = (unet ? take_unet : take_text)(j, config, path.string());
  check(model, config);
  return says;
}

}  // namespace ebb
