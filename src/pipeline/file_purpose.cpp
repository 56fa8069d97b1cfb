#include "pipeline/file_purpose.h"

#include <algorithm>
#include <vector>

#include "adapters/adapter_file.h"
#include "base/error.h"
#include "models/model.h"
#include "pipeline/checkpoint_family.h"
#include "text/textual_inversion.h"
#include "train/model_weights.h"

namespace ebb {
namespace {

// The flags of ebb generate that take a file with a component of this kind alone.
std::string_view flags_of(ModelKind kind) {
  switch (kind) {
    case ModelKind::text_encoder: return "--text-encoder";
    case ModelKind::autoencoder: return "--vae";
    case ModelKind::control_network: return "--control-model, with --control,";
    case ModelKind::upscaler: return "--upscale (and ebb upscale as --model)";
    case ModelKind::adapter: return "--lora";
    case ModelKind::image_encoder: return "--image-encoder";
    case ModelKind::denoiser: break;
  }
  return "";
}

std::string taken(const std::string& what, std::string_view flags) {
  return str(what, ", which ebb generate takes as ", flags, " beside a checkpoint (--model)");
}

// With the article.
std::string title_of(const Component& c) {
  const std::string kind(name_of(c.model->kind));
  const bool vowel = std::string_view("aeiou").find(kind[0]) != std::string_view::npos;
  return str(vowel ? "an " : "a ", kind, " (", c.model->name, ')');
}

}  // namespace

std::string embedding_title(const io::TensorFile& file, const std::string& path) {
  constexpr size_t most = 4;  // one for each encoder
  if (file.entries().size() > most) return "";
  try {
    const text::TextualInversion e = text::read_textual_inversion(path);
    std::string widths;
    for (const Tensor& t : e.vectors)
      widths +=
          str(widths.empty() ? "" : ", ", t.shape()[0], t.shape()[0] == 1 ? " vector" : " vectors",
              " for ", text_encoder_title(t.shape()[1]));
    return "embedding (textual inversion): " + widths;
  } catch (const Error&) {
    return "";
  }
}

std::string purpose_of(const io::TensorFile& file, const std::string& path) {
  const nn::FileShapes shapes = train::shapes_of(file);
  const std::vector<Component> found = recognise_components(shapes);
  const auto is = [&](ModelKind kind) {
    return std::ranges::all_of(found, [&](const Component& c) { return c.model->kind == kind; });
  };
  if (!found.empty()) {
    const ModelKind kind = found[0].model->kind;
    return is(kind) && kind != ModelKind::denoiser ? taken(title_of(found[0]), flags_of(kind)) : "";
  }
  if (std::ranges::any_of(shapes, [](const auto& t) { return adapters::is_adapter_name(t.first); }))
    return taken("a LoRA", flags_of(ModelKind::adapter));
  const std::string embedding = embedding_title(file, path);
  if (embedding.empty()) return "";
  return taken("an " + embedding,
               "a file of the folder --embedding-dir, by its name in the prompt,");
}

}  // namespace ebb
