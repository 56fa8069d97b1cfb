#include "adapters/adapter_file.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "adapters/decomposed.h"
#include "base/error.h"
#include "base/parse_json.h"
#include "base/text.h"
#include "nn/storage.h"
#include "train/model_weights.h"

namespace ebb::adapters {
namespace {

// What a tensor's name says.
struct Found {
  std::string stem, role;
  const AdapterKind* kind = nullptr;  // null: of whatever kind the module is
};

// Roles of all kinds, beside magnitude_roles().
const std::vector<AdapterKind::Role>& common_roles() {
  static const std::vector<AdapterKind::Role> all = {{".alpha", "alpha"},
                                                     {".scale", "scale"},
                                                     {".reshape_weight", "reshape"},
                                                     {".lora_down.bias", "down_bias"}};
  return all;
}

// By the longest suffix.
std::optional<Found> parsed(const std::string& name) {
  std::optional<Found> out;
  size_t longest = 0;
  const auto look = [&](const std::vector<AdapterKind::Role>& roles, const AdapterKind* kind) {
    for (const auto& [suffix, role, names] : roles) {
      if (suffix.size() <= longest || name.size() <= suffix.size() || !name.ends_with(suffix))
        continue;
      longest = suffix.size();
      out = Found{name.substr(0, name.size() - suffix.size()), role, kind};
    }
  };
  for (const AdapterKind* k : all_kinds()) look(k->roles, k);
  look(common_roles(), nullptr);
  look(magnitude_roles(), nullptr);
  return out;
}

}  // namespace

// IA3's factors have the names that a network's own weights have.
bool is_adapter(const io::TensorFile& file) {
  return std::ranges::any_of(file.entries(), [](const io::TensorEntry& e) {
    const auto found = parsed(e.name);
    return found && found->kind && found->role != "w";
  });
}

std::shared_ptr<const AdapterFile> AdapterFile::open(const std::string& path) {
  return from(io::TensorFile::open(path), path);
}

std::shared_ptr<const AdapterFile> AdapterFile::from(io::TensorFile file, std::string path) {
  return std::shared_ptr<const AdapterFile>(new AdapterFile(std::move(file), std::move(path)));
}

AdapterFile::AdapterFile(io::TensorFile file, std::string path)
    : file_(std::make_shared<const io::TensorFile>(std::move(file))), path_(std::move(path)) {
  std::error_code none;  // of what is no file: one identity
  const auto written = std::filesystem::last_write_time(path_, none).time_since_epoch().count();
  identity_ = str(path_, '@', written, '@', std::filesystem::file_size(path_, none));
  read_names();
  drop_unknown();
  require(!modules_.empty(), "adapter: the file has no tensors of an adapter (",
          file_->entries().size(), " tensors",
          unknown_.empty() ? "" : ", the first is '" + unknown_[0] + "'", ")  ", path_);
  read_peft_alphas();
  read_alphas();
}

// Modules by stem and kind; what is common to kinds goes to every module of its stem.
void AdapterFile::read_names() {
  std::map<std::pair<std::string, const AdapterKind*>, FileModule> found;
  std::vector<std::pair<Found, ModuleTensor>> common;
  for (const io::TensorEntry& e : file_->entries()) {
    const auto f = parsed(e.name);
    if (!f) {
      unknown_.push_back(e.name);
      continue;
    }
    const ModuleTensor tensor{e.name, e.shape};
    if (!f->kind) {
      common.emplace_back(*f, tensor);
      continue;
    }
    auto& m = found.try_emplace({f->stem, f->kind}, FileModule{f->kind, Module(f->stem, path_)})
                  .first->second;
    require(m.module.add(f->role, tensor), "adapter: '", e.name, "' is there twice, as '",
            m.module.tensors().find(f->role)->second.name, "'  ", path_);
  }
  for (auto& [f, tensor] : common) {
    bool used = false;
    for (auto& [key, m] : found)
      if (key.first == f.stem) used = m.module.add(f.role, tensor) || used;
    if (!used) unknown_.push_back(tensor.name);
  }
  for (auto& [key, m] : found) modules_.push_back(std::move(m));
}

// Tensors that are named as IA3's are, of modules that are none.
void AdapterFile::drop_unknown() {
  std::erase_if(modules_, [&](const FileModule& m) {
    const bool lone = m.module.has("w") && !m.module.has("on_input");
    if (lone) unknown_.push_back(m.module.tensors().find("w")->second.name);
    return lone;
  });
}

void AdapterFile::read_alphas() {
  for (FileModule& m : modules_) {
    if (!m.module.has("alpha")) continue;
    const ModuleTensor& t = m.module.tensors().find("alpha")->second;
    require(t.shape.numel() == 1, "adapter: '", t.name, "' must be one number (it is ", t.shape,
            ")  ", path_);
    m.module.alpha = double{in_f32(t.name).span<float>()[0]};
  }
}

// PEFT keeps alpha in its configuration, which diffusers writes into the file, for each prefix:
// {"unet.r": 4, "unet.lora_alpha": 8, "unet.alpha_pattern": {...}, ...}.
void AdapterFile::read_peft_alphas() {
  const auto text = metadata().find("lora_adapter_metadata");
  if (text == metadata().end()) return;
  const auto j = parse_json(text->second);
  require(j.is_object(), "adapter: the metadata 'lora_adapter_metadata' must be a JSON object  ",
          path_);
  const auto number = [](const nlohmann::json& v) {
    return v.is_number() ? std::optional(v.get<double>()) : std::nullopt;
  };
  for (const auto& [key, value] : j.items()) {
    constexpr std::string_view wanted = "lora_alpha";
    if (!key.ends_with(wanted)) continue;
    const std::string prefix = key.substr(0, key.size() - wanted.size());
    for (FileModule& m : modules_) {
      const std::string& stem = m.module.stem();
      if (!stem.starts_with(prefix)) continue;
      m.module.alpha = number(value);
      const auto rs = j.find(prefix + "use_rslora");
      m.module.rank_stabilised = rs != j.end() && rs->is_boolean() && rs->get<bool>();
      const auto pattern = j.find(prefix + "alpha_pattern");
      if (pattern == j.end() || !pattern->is_object()) continue;
      for (const auto& [layer, alpha] : pattern->items())
        if (stem == prefix + layer || stem.ends_with("." + layer)) m.module.alpha = number(alpha);
    }
  }
}

std::string AdapterFile::kinds() const {
  std::vector<std::string> names;
  bool decomposed = false;
  for (const FileModule& m : modules_) {
    const bool boft = m.module.has("blocks") && m.module.shape("blocks").rank() == 4;
    const std::string name = boft ? "BOFT" : m.kind->name;
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
    decomposed = decomposed || m.decomposes();
  }
  return listed(names) + (decomposed ? " with DoRA" : "");
}

Tensor AdapterFile::in_f32(const std::string& name) const {
  Tensor t = file_->load(name).to(DType::f32);
  train::check_finite(name, t, path_);
  return t;
}

StoredWeight AdapterFile::stored(const std::string& name) const {
  const io::TensorEntry& e = file_->find(name);
  if (!io::TensorFile::as_stored(e) || !nn::storage_format(*e.dtype))
    return stored_tensor(in_f32(name));
  const std::lock_guard lock(reading_);
  if (finite_.insert(name).second) train::check_finite(name, file_->load(e), path_);
  return {
      .type = {*e.dtype, e.shape},
      .read = [file = file_, &e](int64_t at, std::span<uint8_t> out) { file->read(e, at, out); },
      .host = file_->map(e)};
}

}  // namespace ebb::adapters
