#include "apps/cli/picture_formats.h"

#include "base/error.h"
#include "base/parse_json.h"

#define X(name)                         \
  namespace ebb::cli::picture_formats { \
  const PictureFormat& name();          \
  }
#include "ebb/gen/picture_formats.inc"
#undef X

namespace ebb::cli {
namespace {

constexpr const char* infotext_keyword = "parameters";

TextsOfPicture with_parts_of_json(TextsOfPicture text) {
  const std::string all = text_of(text, infotext_keyword);
  if (!all.starts_with('{')) return text;
  const auto j = parse_json(all);
  if (!j.is_object()) return text;
  bool is_graph = !j.empty();
  for (const auto& [key, value] : j.items()) {
    is_graph = is_graph && value.is_object();
    text.emplace(key, value.is_string() ? value.get<std::string>() : value.dump());
  }
  if (is_graph) text.emplace("prompt", all);  // of ComfyUI, by itself
  return text;
}

}  // namespace

const std::vector<const PictureFormat*>& all_picture_formats() {
  static const std::vector<const PictureFormat*> all = {
#define X(name) &picture_formats::name(),
#include "ebb/gen/picture_formats.inc"
#undef X
  };
  return all;
}

std::optional<OtherSettings> other_settings(const TextsOfPicture& text) {
  const std::string& a1111 = text_of(text, infotext_keyword);
  if (!a1111.starts_with('{') && !parse_infotext(a1111).values.empty()) return {};
  const TextsOfPicture all = with_parts_of_json(text);
  for (const PictureFormat* format : all_picture_formats())
    if (auto found = format->read(all)) return OtherSettings{format, std::move(*found)};
  return {};
}

std::string infotext_of(const TextsOfPicture& text) {
  const auto other = other_settings(text);
  if (!other) return text_of(text, infotext_keyword);
  Infotext out = other->found.text;
  for (const std::string& lora : other->found.loras) out.prompt += str(" <lora:", lora, ">");
  return infotext(out);
}

const std::string& text_of(const TextsOfPicture& text, const std::string& keyword) {
  static const std::string none;
  constexpr size_t most = 2 << 20;
  const auto at = text.find(keyword);
  if (at == text.end()) return none;
  require(at->second.size() <= most, "the picture's text `", keyword, "` has ", at->second.size(),
          " bytes (at most ", most, " are read)");
  return at->second;
}

void add_value(Infotext& text, std::string key, std::string value) {
  if (!value.empty()) text.values.emplace_back(std::move(key), std::move(value));
}

std::string file_stem(std::string_view path) {
  path = path.substr(path.find_last_of("/\\") + 1);  // npos + 1 is 0
  for (const std::string_view ending : {".safetensors", ".ckpt", ".pt", ".pth", ".sft", ".gguf"})
    if (path.ends_with(ending)) path.remove_suffix(ending.size());
  return std::string(path);
}

}  // namespace ebb::cli
