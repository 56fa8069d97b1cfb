#include "pipeline/file_purpose.h"

#include <algorithm>
#include <vector>

#include "adapters/adapter_file.h"
#include "base/error.h"
#include "base/text.h"
#include "models/family.h"
#include "pipeline/checkpoint_family.h"
#include "text/textual_inversion.h"
#include "train/model_weights.h"

namespace ebb {
namespace {

struct Use {
  std::string_view takes;  // what flags of this kind take
  std::string_view flags;  // of ebb generate, that take a file with such a component alone
};

Use use_of(ModelKind kind) {
  switch (kind) {
    case ModelKind::text_encoder: return {"a text encoder", "--text-encoder"};
    case ModelKind::autoencoder: return {"an autoencoder (VAE)", "--vae"};
    case ModelKind::control_network:
      return {"a control network, T2I-Adapter or IP-Adapter", "--control-model, with --control,"};
    case ModelKind::upscaler:
      return {"an upscaler (ESRGAN, Real-ESRGAN)", "--upscale (and ebb upscale as --model)"};
    case ModelKind::adapter: return {"a LoRA or one of its relatives", "--lora"};
    case ModelKind::image_encoder: return {"CLIP's vision encoder", "--image-encoder"};
    case ModelKind::denoiser: break;
  }
  return {"a checkpoint of text to image", "--model"};
}

std::string taken(std::string_view what, std::string_view flags) {
  return str(what, ", which ebb generate takes as ", flags, " beside a checkpoint (--model)");
}

std::string with_article(const std::string& what) {
  const bool vowel = std::string_view("aeiou").find(what[0]) != std::string_view::npos;
  return str(vowel ? "an " : "a ", what);
}

std::string title_of(const Component& c) {
  return str(name_of(c.model->kind), " (", c.model->name, ')');
}

// Of a file with networks, denoisers first.
std::string purpose_of(const std::vector<Component>& found) {
  const Component& first = found.front();
  if (first.model->kind == ModelKind::denoiser && !find_family(first.config))
    return str("is ", with_article(title_of(first)),
               " that reads no text, which ebb sample and ebb eval take");
  std::vector<std::string> titles;
  for (const Component& c : found) titles.push_back(title_of(c));
  const std::string all = listed(titles);
  if (first.model->kind == ModelKind::denoiser)
    return str("is a checkpoint, which ebb generate takes as --model (it has: ", all, ')');
  const bool alone = std::ranges::all_of(
      found, [&](const Component& c) { return c.model->kind == first.model->kind; });
  if (alone)
    return str("is ", taken(with_article(title_of(first)), use_of(first.model->kind).flags));
  std::string flags;
  for (const Component& c : found)
    if (const std::string_view one = use_of(c.model->kind).flags;
        flags.find(one) == std::string::npos)
      flags += str(flags.empty() ? "" : " and ", one);
  return str("has ", taken(all, flags));
}

}  // namespace

std::string embedding_title(const io::TensorFile& file, const std::string& path) {
  constexpr size_t most = 4;  // one for each encoder
  if (file.entries().size() > most) return "";
  try {
    const text::TextualInversion e = text::read_textual_inversion(path);
    std::vector<std::string> vectors;
    for (const Tensor& t : e.vectors)
      vectors.push_back(str(t.shape()[0], t.shape()[0] == 1 ? " vector" : " vectors", " for ",
                            text_encoder_title(t.shape()[1])));
    return "embedding (textual inversion): " + listed(vectors);
  } catch (const Error&) {
    return "";
  }
}

std::string purpose_of(const io::TensorFile& file, const std::string& path) {
  const nn::FileShapes shapes = train::shapes_of(file);
  if (const auto found = recognise_components(shapes); !found.empty()) return purpose_of(found);
  if (adapters::is_adapter(file)) return "is " + taken("a LoRA", use_of(ModelKind::adapter).flags);
  if (const std::string embedding = embedding_title(file, path); !embedding.empty())
    return "is " + taken(with_article(embedding),
                         "a file of the folder --embedding-dir, by its name in the prompt,");
  return unknown_tensors(shapes);
}

std::string use_text(const io::TensorFile& file, const std::string& path) {
  constexpr std::string_view which = ", which ", takes = " takes as ", all = " (it has: ";
  std::string text = purpose_of(file, path);
  const size_t at = text.find(which);
  if (at == text.npos) return "";
  text = text.substr(at + which.size());
  text.resize(std::min(text.find(all), text.size()));
  if (const size_t verb = text.find(takes); verb != text.npos)
    return text.replace(verb, takes.size(), " takes it as ");
  return text + " it";  // "ebb sample and ebb eval take"
}

void fail_kind(std::string_view flag, ModelKind wanted, const io::TensorFile& file,
               const std::string& path) {
  fail(flag, " takes ", use_of(wanted).takes, ", and the file ", purpose_of(file, path), "  ",
       path);
}

Component component_in(const io::TensorFile& file, const std::string& path, ModelKind wanted,
                       std::string_view flag) {
  for (Component& c : recognise_components(train::shapes_of(file)))
    if (c.model->kind == wanted) return std::move(c);
  fail_kind(flag, wanted, file, path);
}

}  // namespace ebb
