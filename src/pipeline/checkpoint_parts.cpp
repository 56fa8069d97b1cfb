#include "pipeline/checkpoint_parts.h"

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "base/by_flag.h"
#include "base/error.h"
#include "models/family.h"
#include "pipeline/component_config.h"
#include "pipeline/diffusers_folder.h"
#include "pipeline/file_purpose.h"
#include "pipeline/image_encoder.h"
#include "pipeline/latent_space.h"
#include "pipeline/open_files.h"
#include "pipeline/suggested_guidance.h"
#include "pipeline/upscaler.h"
#include "train/model_weights.h"

namespace ebb {
namespace {

// An Error says which of several files it is about.
std::shared_ptr<WeightStore> opened(const std::shared_ptr<const io::TensorFile>& file,
                                    const std::string& path, const Component& c) {
  try {
    return open_component(file, path, c);
  } catch (const Error& e) {
    const std::string what = e.what();
    fail(what, what.find(path) == std::string::npos ? "  " + path : "");
  }
}

std::vector<LoadedComponent> components_in(OpenFiles& open, const std::string& path,
                                           ModelKind kind) {
  const auto file = open.get(path);
  std::vector<LoadedComponent> out;
  for (const Component& c : recognise_components(train::shapes_of(*file)))
    if (c.model->kind == kind) out.push_back({c, opened(file, path, c), path});
  return out;
}

bool is_folder(const std::string& path) { return std::filesystem::is_directory(path); }

// Beside the model.
bool names_folder(const PartFiles& files) {
  return std::ranges::any_of(files.text_encoders, is_folder) || is_folder(files.autoencoder) ||
         is_folder(files.refiner) || is_folder(files.image_encoder);
}

DiffusersFolder layout_of(const PartFiles& files) {
  if (std::filesystem::is_directory(files.model))
    return read_diffusers_folder(files.model, files.variant);
  require(files.variant.empty() || names_folder(files),
          "generate: --variant is of folders of diffusers (", files.variant, ")  ", files.model);
  return {.denoiser = files.model,
          .autoencoder = files.model,
          .text_encoders = {files.model},
          .tokenizer = {},
          .scheduler = {},
          .autoencoder_config = {},
          .pipeline = {},
          .missing = {},
          .zeros_for_empty = {}};
}

void check_file(const std::string& file, const char* flag) {
  require(!file.empty() && std::filesystem::exists(file), "generate: ", flag, " does not exist  ",
          file);
}

// The files with a component that a flag names: a file, or of diffusers the folder of the component
// or that of a pipeline, where it is called as in `parts`. Throws Error.
std::vector<std::string> component_files(const std::string& path, const char* flag,
                                         const std::vector<std::string>& parts,
                                         const std::string& variant) {
  check_file(path, flag);
  if (!std::filesystem::is_directory(path)) return {path};
  if (std::string own = component_weights(path, variant); !own.empty()) return {own};
  std::vector<std::string> out;
  for (const std::string& part : parts)
    if (std::string file =
            component_weights((std::filesystem::path(path) / part).string(), variant);
        !file.empty())
      out.push_back(std::move(file));
  require(!out.empty(), "generate: ", flag,
          " takes a file, or a folder of diffusers with weights in ", "it or in its ", parts[0],
          "/, and this one has none  ", path);
  return out;
}

// Of a denoiser in diffusers' folder.
void take_config(LoadedModel& m, const std::string& weights) {
  if (take_config(*m.model, m.config, weights)) m.guessed = "";
}

// What a folder says of its latents.
void take_latent_scaling(LoadedModel& m, const DiffusersFolder& layout) {
  if (layout.autoencoder_config.empty()) return;
  read_latent_scaling(m.config, layout.autoencoder_config);
  check(*m.model, m.config);
}

void check_reads_text(const LoadedModel& m, const std::string& file, const char* flag,
                      OpenFiles& open) {
  if (!find_family(m.config))
    fail_kind(str("generate: ", flag), ModelKind::denoiser, *open.get(file), file);
}

void add_refiner(CheckpointParts& parts, const std::string& file, const std::string& variant) {
  check_file(file, "--refiner");
  const DiffusersFolder layout =
      layout_of({.model = file, .variant = is_folder(file) ? variant : ""});
  OpenFiles open;
  parts.refiner =
      by_flag("generate: --refiner", [&] { return load_model(layout.denoiser, open, "", {}, {}); });
  check_reads_text(*parts.refiner, layout.denoiser, "--refiner", open);
  parts.refiner_zeros_for_empty = layout.zeros_for_empty;
  if (is_folder(file)) take_config(*parts.refiner, layout.denoiser);
  take_latent_scaling(*parts.refiner, layout);
  for (const std::string& encoders : layout.text_encoders)
    for (LoadedComponent& c : components_in(open, encoders, ModelKind::text_encoder)) {
      if (is_folder(file)) take_config(*c.component.model, c.component.config, encoders);
      parts.refiner_encoders.push_back(std::move(c));
    }
  if (parts.refiner_encoders.empty()) parts.refiner_encoders = parts.text_encoders;
}

}  // namespace

LoadedComponent load_autoencoder(const std::string& file, const char* flag,
                                 const std::string& variant) {
  const std::string weights = component_files(file, flag, {"vae"}, variant).front();
  OpenFiles open;
  const std::string name = str("generate: ", flag);
  const auto found =
      by_flag(name, [&] { return components_in(open, weights, ModelKind::autoencoder); });
  if (found.empty()) fail_kind(name, ModelKind::autoencoder, *open.get(weights), weights);
  return found.front();
}

CheckpointParts load_parts(const PartFiles& files,
                           const std::vector<std::pair<std::string, std::string>>& overrides) {
  check_file(files.model, "--model");
  const DiffusersFolder layout = layout_of(files);
  for (const std::string& name : layout.missing)
    require(name == "vae" ? !files.autoencoder.empty() : !files.text_encoders.empty(),
            "generate: the folder lacks the weights of ", name,
            ", which its model_index.json names  ", files.model);
  std::optional<SchedulerConfig> scheduler;
  if (!layout.scheduler.empty()) scheduler = read_scheduler_config(layout.scheduler);
  std::vector<std::pair<std::string, std::string>> fields;
  if (scheduler) fields = scheduler->diffusion;
  fields.insert(fields.end(), overrides.begin(), overrides.end());
  OpenFiles open;
  CheckpointParts out{
      .denoiser = load_model(layout.denoiser, open, "", fields, {.averaged = files.averaged}),
      .text_encoders = {},
      .autoencoder = {},
      .tokenizer = layout.tokenizer,
      .scheduler = std::move(scheduler),
      .zeros_for_empty = layout.zeros_for_empty};
  out.guidance = suggested_guidance(*open.get(layout.denoiser, {.averaged = files.averaged}));
  check_reads_text(out.denoiser, layout.denoiser, "--model", open);
  if (is_folder(files.model)) take_config(out.denoiser, layout.denoiser);
  take_latent_scaling(out.denoiser, layout);
  const auto add_encoders = [&](const std::string& file, bool in_folder) {
    auto found = components_in(open, file, ModelKind::text_encoder);
    for (LoadedComponent& c : found)
      if (in_folder) take_config(*c.component.model, c.component.config, file);
    out.text_encoders.insert(out.text_encoders.end(), found.begin(), found.end());
    return !found.empty();
  };
  for (const std::string& path : files.text_encoders)
    for (const std::string& file :
         component_files(path, "--text-encoder", {"text_encoder", "text_encoder_2"}, files.variant))
      if (!by_flag("generate: --text-encoder", [&] { return add_encoders(file, is_folder(path)); }))
        fail_kind("generate: --text-encoder", ModelKind::text_encoder, *open.get(file), file);
  for (const std::string& file : layout.text_encoders) add_encoders(file, is_folder(files.model));
  if (!files.autoencoder.empty())
    out.autoencoder = load_autoencoder(files.autoencoder, "--vae", files.variant);
  else if (!layout.autoencoder.empty())
    if (const auto found = components_in(open, layout.autoencoder, ModelKind::autoencoder);
        !found.empty())
      out.autoencoder = found.front();
  if (!files.hires_upscaler.empty())
    out.hires_upscaler = by_flag("generate: --hires", [&] {
      return load_upscaler(files.hires_upscaler, "generate: --hires");
    });
  if (!files.refiner.empty()) add_refiner(out, files.refiner, files.variant);
  if (!files.image_encoder.empty())
    out.image_encoder = by_flag("generate: --image-encoder", [&] {
      return load_image_encoder(files.image_encoder, files.variant);
    });
  return out;
}

}  // namespace ebb
