#include "text/textual_inversion.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/names.h"
#include "text/text_encoder.h"

namespace ebb::text {
namespace {

namespace fs = std::filesystem;

constexpr int64_t vector_limit = 255;
constexpr int64_t head_width = 64;  // of all of these encoders
constexpr size_t tensor_limit = 64;
constexpr int64_t byte_limit = int64_t{64} << 20;

const TextEncoder* encoder_of_key(std::string_view key) {
  for (const TextEncoder& e : text_encoders())
    if (e.name == key) return &e;
  return nullptr;
}

// The tensor as f32 [n, width], checked.
Tensor vectors_of(const io::NamedTensor& named, const std::string& path) {
  const Tensor& t = named.tensor;
  require(is_float(t.dtype()), "embedding: vectors must be floats (", t.type(), ")  ", named.name,
          " in ", path);
  require(t.shape().rank() == 1 || t.shape().rank() == 2,
          "embedding: must be [vectors, width] or [width] (", t.shape(), ")  ", named.name, " in ",
          path);
  const int64_t width = t.shape()[-1];
  const int64_t n = t.shape().rank() == 1 ? 1 : t.shape()[0];
  require(width > 0 && width % head_width == 0,
          "embedding: the width must be a text encoder's, which is a multiple of ", head_width,
          " (", width, ")  ", named.name, " in ", path);
  require(n >= 1 && n <= vector_limit, "embedding: must have 1 to ", vector_limit, " vectors (", n,
          ")  ", named.name, " in ", path);
  Tensor out = t.to(DType::f32).reshape({n, width});
  for (const float v : out.span<float>())
    require(std::isfinite(v), "embedding: values must be finite (", v, ")  ", named.name, " in ",
            path);
  return out;
}

std::string names_of(std::span<const io::NamedTensor> tensors) {
  std::string out;
  for (size_t i = 0; i < std::min<size_t>(tensors.size(), 4); ++i)
    out += (i ? ", " : "") + tensors[i].name;
  return out + (tensors.size() > 4 ? ", ..." : "");
}

}  // namespace

const Tensor* TextualInversion::of_width(int64_t width) const {
  for (const Tensor& t : vectors)
    if (t.shape()[1] == width) return &t;
  return nullptr;
}

TextualInversion textual_inversion(std::span<const io::NamedTensor> tensors,
                                   const std::string& path) {
  TextualInversion out{.name = fs::path(path).stem().string()};
  const bool keyed = std::all_of(tensors.begin(), tensors.end(), [](const io::NamedTensor& t) {
    return encoder_of_key(t.name) != nullptr;
  });
  require(!tensors.empty() && (keyed || tensors.size() == 1),
          "embedding: must be one tensor, or clip_l and clip_g (", tensors.size(), ": ",
          names_of(tensors), ")  ", path);
  for (const io::NamedTensor& named : tensors) {
    Tensor t = vectors_of(named, path);
    const int64_t n = t.shape()[0], width = t.shape()[1];
    const TextEncoder* encoder = encoder_of_key(named.name);
    require(!encoder || encoder->width == width, "embedding: ", named.name, " must have width ",
            encoder ? encoder->width : 0, " (", width, ")  ", path);
    require(out.vectors.empty() || out.vectors[0].shape()[0] == n,
            "embedding: must have as many vectors for each encoder (",
            out.vectors.empty() ? 0 : out.vectors[0].shape()[0], ", ", n, ")  ", path);
    out.vectors.push_back(std::move(t));
  }
  return out;
}

TextualInversion read_textual_inversion(const std::string& path) {
  const auto file = io::TensorFile::open(path);
  require(file.entries().size() <= tensor_limit, "embedding: must be one tensor, or clip_l and",
          " clip_g (", file.entries().size(), " tensors)  ", path);
  std::vector<io::NamedTensor> tensors;
  for (const io::TensorEntry& e : file.entries()) {
    require(e.end - e.begin <= byte_limit, "embedding: is too large (", e.end - e.begin,
            " bytes)  ", e.name, " in ", path);
    require(e.dtype.has_value(), "embedding: dtype ", e.file_dtype, " is not supported  ", e.name,
            " in ", path);
    tensors.push_back({e.name, file.load(e)});
  }
  return textual_inversion(tensors, path);
}

namespace {

// An error of a file as a warning, which names the file in any case.
std::string left_out(std::string_view error, const std::string& path) {
  constexpr std::string_view prefix = "embedding: ";
  if (error.starts_with(prefix)) error.remove_prefix(prefix.size());
  const bool names = error.find(path) != error.npos;
  return str(prefix, "a file is left out: ", error, names ? "" : "  ", names ? "" : path);
}

}  // namespace

EmbeddingFolder read_embedding_folder(const std::string& folder, PromptSyntax syntax) {
  require(fs::is_directory(folder), "embedding: --embedding-dir must name a folder of embeddings, ",
          fs::exists(folder) ? "and this is a file" : "which does not exist", "  ", folder);
  std::error_code error;
  const fs::directory_iterator readable(folder, error);
  require(!error, "embedding: --embedding-dir cannot be read (", error.message(), ")  ", folder);
  std::vector<fs::path> files;
  for (const auto& entry :
       fs::recursive_directory_iterator(folder, fs::directory_options::skip_permission_denied)) {
    const std::string ending = small_letters(entry.path().extension().string());
    std::error_code unreadable;  // of a link that leads nowhere or in a circle
    if (entry.is_regular_file(unreadable) &&
        (ending == ".safetensors" || ending == ".pt" || ending == ".bin"))
      files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  EmbeddingFolder out;
  for (const fs::path& path : files) {
    const fs::path relative = path.lexically_relative(folder).replace_extension();
    const std::string name =
        syntax == PromptSyntax::comfyui ? relative.generic_string() : relative.filename().string();
    try {
      TextualInversion read = read_textual_inversion(path.string());
      require(out.embeddings.emplace(name, std::move(read)).second,
              "embedding: another file has this name  ", path.string());
    } catch (const Error& e) {
      out.left_out.emplace(name, left_out(e.what(), path.string()));
    }
  }
  return out;
}

namespace {

// Whether a prompt has these words, in any case: what may be meant as the name of an embedding.
bool has_words(const Prompt& prompt, const std::string& words) {
  const std::string small = small_letters(words);
  const auto is_letter = [](const std::string& text, size_t at) {
    return at < text.size() && std::isalnum(static_cast<unsigned char>(text[at])) != 0;
  };
  return std::any_of(prompt.parts.begin(), prompt.parts.end(), [&](const PromptPart& part) {
    const std::string text = small_letters(part.text);
    for (size_t at = text.find(small); at != text.npos; at = text.find(small, at + 1))
      if ((at == 0 || !is_letter(text, at - 1)) && !is_letter(text, at + small.size())) return true;
    return false;
  });
}

}  // namespace

std::vector<std::string> left_out_of(const EmbeddingFolder& folder, const Prompt& prompt) {
  std::vector<std::string> out;
  for (const auto& [name, why] : folder.left_out)
    if (has_words(prompt, name)) out.push_back(why);
  return out;
}

std::map<std::string, int64_t> vector_counts(const EmbeddingFolder& folder, int64_t width,
                                             const Prompt& prompt,
                                             std::vector<std::string>& warnings) {
  std::map<std::string, int64_t> out;
  for (const auto& [name, embedding] : folder.embeddings) {
    if (const Tensor* t = embedding.of_width(width)) {
      out.emplace(name, t->shape()[0]);
      continue;
    }
    if (has_words(prompt, name))
      warnings.push_back(str("embedding: has no vectors of width ", width, " (",
                             embedding.vectors[0].shape()[1], "): left out  ", name));
  }
  return out;
}

}  // namespace ebb::text
