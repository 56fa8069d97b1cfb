#include "pipeline/diffusers_folder.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "base/error.h"
#include "models/family.h"
#include "pipeline/file_purpose.h"
#include "pipeline/folder_json.h"
#include "train/checkpoint.h"

namespace ebb {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

constexpr const char* stems[] = {"diffusion_pytorch_model", "model", "pytorch_model"};

// In the order of preference: whole files before those in parts, safetensors before pickles.
std::vector<std::string> names_of(const std::string& variant) {
  const std::string dot = variant.empty() ? "" : "." + variant;
  std::vector<std::string> out;
  for (const char* ending : {"safetensors", "bin"})
    for (const char* stem : stems) {
      out.push_back(str(stem, dot, '.', ending));
      out.push_back(str(stem, '.', ending, ".index", dot, ".json"));
      out.push_back(str(stem, dot, '.', ending, ".index.json"));
    }
  return out;
}

// "fp16" of "model.fp16.safetensors", of "model.safetensors.index.fp16.json".
std::set<std::string> variants_in(const fs::path& folder) {
  std::set<std::string> out;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    for (const char* stem : stems) {
      if (!name.starts_with(std::string(stem) + ".")) continue;
      for (const char* ending : {".safetensors", ".bin"}) {
        const size_t first = std::string(stem).size() + 1;
        if (name.ends_with(ending) && name.size() > first + std::string(ending).size())
          out.insert(name.substr(first, name.size() - first - std::string(ending).size()));
        const std::string index = str(stem, ending, ".index.");
        if (name.starts_with(index) && name != index + "json" && name.ends_with(".json"))
          out.insert(name.substr(index.size(), name.size() - index.size() - 5));
      }
    }
  }
  return out;
}

std::string weights_in(const fs::path& folder, const std::string& variant) {
  if (!fs::is_directory(folder)) return "";
  const auto first = [&](const std::string& v) -> std::string {
    for (const std::string& name : names_of(v))
      if (fs::is_regular_file(folder / name)) return (folder / name).string();
    return "";
  };
  if (const std::string file = first(variant); !file.empty()) return file;
  const std::set<std::string> others = variants_in(folder);
  std::string list;
  for (const std::string& v : others) list += (list.empty() ? "" : ", ") + v;
  require(variant.empty() || others.empty(), "folder: has no variant ", variant, " (", list, ")  ",
          folder.string());
  require(others.size() < 2, "folder: has several variants; --variant names one (", list, ")  ",
          folder.string());
  return first(others.empty() ? "" : *others.begin());
}

json read_index(const fs::path& path) {
  if (!fs::exists(path)) return json::object();
  return read_folder_json(path.string(), "folder", "model_index.json ");
}

void check_pipeline(const std::string& name, const std::string& path) {
  // "StableDiffusion" and what it does, but not "StableDiffusion3"
  const auto is = [&](const std::string& start) {
    return name.starts_with(start) &&
           (name.size() == start.size() || !is_digit(name[start.size()]));
  };
  std::string families;
  bool known = name.empty();
  for (const Family* f : all_families()) {
    known = known || is(f->pipeline) || std::ranges::any_of(f->other_pipelines, is);
    families += str(families.empty() ? "" : ", ", f->name);
  }
  require(known, "folder: is of diffusers' ", name, ", which is not implemented (", families,
          " are)  ", path);
}

// Of all families, in the order of their names: text_encoder, text_encoder_2, ...
std::set<std::string> text_folders() {
  std::set<std::string> out;
  for (const Family* f : all_families())
    for (const FamilyText& t : f->texts) out.insert(t.folder);
  return out;
}

// What takes the model, where the folder is of a training run.
[[noreturn]] void fail_without_denoiser(const std::string& path) {
  if (const auto step = train::last_model(path)) {
    const std::string file = train::model_file(path, *step);
    fail("checkpoint: the folder is of a training run, whose model ",
         purpose_of(io::TensorFile::open(file), file), "  ", file);
  }
  fail("checkpoint: the folder has no unet/diffusion_pytorch_model.safetensors, as diffusers' ",
       "models have it  ", path);
}

}  // namespace

DiffusersFolder read_diffusers_folder(const std::string& path, const std::string& variant) {
  const fs::path folder(path);
  const json index = read_index(folder / "model_index.json");
  DiffusersFolder out;
  if (const auto it = index.find("_class_name"); it != index.end() && it->is_string())
    out.pipeline = it->get<std::string>();
  check_pipeline(out.pipeline, path);
  if (const auto it = index.find("force_zeros_for_empty_prompt");
      it != index.end() && it->is_boolean())
    out.zeros_for_empty = it->get<bool>();
  const auto named = [&](const char* name) {
    const auto said = index.find(name);
    return said != index.end() && said->is_array() && !said->empty() && !said->front().is_null();
  };
  const auto component = [&](const char* name) {
    std::string file = weights_in(folder / name, variant);
    if (file.empty() && named(name)) out.missing.emplace_back(name);
    return file;
  };
  out.denoiser = component("unet");
  if (out.denoiser.empty()) fail_without_denoiser(path);
  for (const std::string& name : text_folders())
    if (std::string file = component(name.c_str()); !file.empty())
      out.text_encoders.push_back(std::move(file));
  out.autoencoder = component("vae");
  const fs::path tokenizer = folder / "tokenizer", second = folder / "tokenizer_2";
  for (const fs::path& t : {second, tokenizer})
    if (fs::exists(t / "merges.txt")) out.tokenizer = t.string();
  if (fs::exists(folder / "scheduler" / "scheduler_config.json"))
    out.scheduler = (folder / "scheduler" / "scheduler_config.json").string();
  require(!out.scheduler.empty() || !named("scheduler"),
          "folder: lacks scheduler/scheduler_config.json, which its model_index.json names  ",
          path);
  if (fs::exists(folder / "vae" / "config.json"))
    out.autoencoder_config = (folder / "vae" / "config.json").string();
  return out;
}

std::string component_weights(const std::string& folder, const std::string& variant) {
  return weights_in(folder, variant);
}

}  // namespace ebb
