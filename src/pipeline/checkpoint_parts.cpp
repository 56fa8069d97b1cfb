#include "pipeline/checkpoint_parts.h"

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "base/error.h"
#include "io/safetensors.h"
#include "train/model_weights.h"

namespace ebb {
namespace {

namespace fs = std::filesystem;

std::vector<LoadedComponent> components_of(const std::string& file, ModelKind kind) {
  std::vector<LoadedComponent> out;
  for (const Component& c : recognise_components(train::shapes_of(io::SafetensorsFile::open(file))))
    if (c.model->kind == kind) out.push_back({c, open_component(file, c)});
  return out;
}

// The weights of a folder of diffusers' pipelines: the name depends on who wrote it.
std::string weights_in(const fs::path& folder) {
  for (const char* name : {"diffusion_pytorch_model.safetensors", "model.safetensors",
                           "diffusion_pytorch_model.fp16.safetensors", "model.fp16.safetensors"})
    if (fs::exists(folder / name)) return (folder / name).string();
  return "";
}

// The files of a model: itself, or those of a folder as diffusers lays it out.
struct Layout {
  std::string denoiser, tokenizer;
  std::vector<std::string> text_encoders, autoencoders;
};

Layout layout_of(const std::string& model) {
  const fs::path path(model);
  if (!fs::is_directory(path)) return {model, "", {model}, {model}};
  Layout out{.denoiser = weights_in(path / "unet"),
             .tokenizer = {},
             .text_encoders = {},
             .autoencoders = {}};
  require(!out.denoiser.empty(),
          "generate: the folder has no unet/diffusion_pytorch_model.safetensors"
          ", as diffusers' models have it  ",
          model);
  for (const char* name : {"text_encoder", "text_encoder_2"})
    if (const std::string file = weights_in(path / name); !file.empty())
      out.text_encoders.push_back(file);
  if (const std::string file = weights_in(path / "vae"); !file.empty())
    out.autoencoders.push_back(file);
  if (fs::exists(path / "tokenizer" / "merges.txt")) out.tokenizer = (path / "tokenizer").string();
  return out;
}

void check_file(const std::string& file, const char* flag) {
  require(!file.empty() && fs::exists(file), "generate: ", flag, " does not exist  ", file);
}

void add_refiner(CheckpointParts& parts, const std::string& file) {
  check_file(file, "--refiner");
  const Layout layout = layout_of(file);
  parts.refiner = load_model(layout.denoiser);
  for (const std::string& encoders : layout.text_encoders)
    std::ranges::copy(components_of(encoders, ModelKind::text_encoder),
                      std::back_inserter(parts.refiner_encoders));
  if (parts.refiner_encoders.empty()) parts.refiner_encoders = parts.text_encoders;
}

}  // namespace

CheckpointParts load_parts(const PartFiles& files,
                           const std::vector<std::pair<std::string, std::string>>& overrides) {
  check_file(files.model, "--model");
  const Layout layout = layout_of(files.model);
  CheckpointParts out{.denoiser = load_model(layout.denoiser, "", overrides),
                      .text_encoders = {},
                      .autoencoder = {},
                      .tokenizer = layout.tokenizer};
  const auto add_encoders = [&](const std::string& file) {
    const auto found = components_of(file, ModelKind::text_encoder);
    out.text_encoders.insert(out.text_encoders.end(), found.begin(), found.end());
    return !found.empty();
  };
  for (const std::string& file : files.text_encoders) {
    check_file(file, "--text-encoder");
    require(add_encoders(file), "generate: --text-encoder has no text encoder that ebb knows  ",
            file);
  }
  for (const std::string& file : layout.text_encoders) add_encoders(file);
  if (!files.autoencoder.empty()) check_file(files.autoencoder, "--vae");
  std::vector<std::string> sources = layout.autoencoders;
  if (!files.autoencoder.empty()) sources = {files.autoencoder};
  for (const std::string& file : sources)
    if (const auto found = components_of(file, ModelKind::autoencoder); !found.empty())
      out.autoencoder = found.front();
  require(files.autoencoder.empty() || out.autoencoder,
          "generate: --vae has no autoencoder that ebb knows  ", files.autoencoder);
  if (!files.refiner.empty()) add_refiner(out, files.refiner);
  return out;
}

}  // namespace ebb
