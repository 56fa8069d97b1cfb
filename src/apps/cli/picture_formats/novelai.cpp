// NovelAI: `Comment` is a JSON object of its request, `Description` the prompt, `Source` the model.
// Emphasis: {text} is 1.05 times as strong, [text] 1/1.05 times, 1.5::text:: 1.5 times (its
// documentation of strengthening and weakening).
#include <cctype>

#include "apps/cli/picture_formats.h"
#include "base/error.h"
#include "base/names.h"
#include "base/parse_json.h"

namespace ebb::cli::picture_formats {
namespace {

using Json = nlohmann::json;

// ---- emphasis
// The length of the number that ends `text`, as of "a 1.5"; 0: it ends with none.
size_t number_length(std::string_view text) {
  size_t at = text.find_last_not_of("0123456789.") + 1;  // npos + 1 is 0
  if (at < text.size() && at > 0 && text[at - 1] == '-') --at;
  const bool in_word = at > 0 && std::isalnum(static_cast<unsigned char>(text[at - 1])) != 0;
  return in_word ? 0 : text.size() - at;
}

// As A1111 writes it: (text:1.05). Marks without their other one end with the text.
std::string a1111_emphasis(std::string_view text) {
  std::string out;
  std::vector<std::string> open;  // what closes each: the weight
  const auto begin = [&](std::string weight) { out += '(', open.push_back(std::move(weight)); };
  const auto end = [&] { out += ':' + open.back() + ')', open.pop_back(); };
  constexpr const char *more = "1.05", *less = "0.952381";
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '{' || c == '[') {
      begin(c == '{' ? more : less);
    } else if ((c == '}' || c == ']') && !open.empty()) {
      end();
    } else if (text.substr(i).starts_with("::")) {
      ++i;
      const size_t digits = number_length(out);
      if (digits > 0) {
        std::string weight = out.substr(out.size() - digits);
        out.resize(out.size() - digits);
        begin(std::move(weight));
      } else if (!open.empty()) {
        end();
      }
    } else if (c == '(' || c == ')' || c == '\\') {
      out += '\\', out += c;
    } else {
      out += c;
    }
  }
  while (!open.empty()) end();
  return out;
}

// ---- the request
std::string value_of(const Json& j, const char* name) {
  const auto at = j.find(name);
  if (at == j.end()) return "";
  if (at->is_string()) return at->get<std::string>();
  return at->is_number() ? at->dump() : "";
}

void add_sampler(const Json& j, Infotext& out) {
  std::string sampler = value_of(j, "sampler");
  if (sampler.starts_with("k_")) sampler.erase(0, 2);
  if (sampler == "ddim_v3") sampler = "ddim";
  add_value(out, "Sampler", sampler);
  const std::string schedule = value_of(j, "noise_schedule");
  if (schedule != "native") add_value(out, "Schedule type", schedule);
}

// The first models, of Stable Diffusion 1, take the layer before the last, and draw the steps'
// numbers by another seed (A1111's notes on pictures of this program).
void add_of_first_models(const std::string& source, Infotext& out) {
  if (!source.starts_with("Stable Diffusion ") || source.find(" XL") != source.npos) return;
  add_value(out, "Clip skip", "2");
  add_value(out, "ENSD", "31337");
}

// What ebb does not have.
void add_others(const Json& j, Infotext& out) {
  for (const auto& [field, key] : {std::pair{"sm", "SMEA"}, std::pair{"sm_dyn", "SMEA dynamic"},
                                   std::pair{"dynamic_thresholding", "Decrisper"}})
    if (j.contains(field) && j[field] == true) add_value(out, key, "True");
  for (const auto& [field, key] :
       {std::pair{"cfg_rescale", "CFG rescale"}, std::pair{"skip_cfg_above_sigma", "Skip CFG"}})
    if (const std::string v = value_of(j, field); v != "0" && v != "0.0") add_value(out, key, v);
  const auto prompt = j.find("v4_prompt");
  if (prompt == j.end() || !prompt->is_object()) return;
  const Json caption = prompt->value("caption", Json());
  if (!caption.is_object()) return;
  for (const Json& one : caption.value("char_captions", Json()))
    if (one.is_object()) add_value(out, "Prompt of a character", value_of(one, "char_caption"));
}

std::optional<FoundSettings> read(const TextsOfPicture& text) {
  const Json j = parse_json(text_of(text, "Comment"));
  if (!j.is_object() || !j.contains("uc") || value_of(j, "steps").empty()) return {};
  FoundSettings out;
  const std::string prompt = value_of(j, "prompt");
  out.text.prompt = a1111_emphasis(prompt.empty() ? text_of(text, "Description") : prompt);
  out.text.negative = a1111_emphasis(value_of(j, "uc"));
  add_value(out.text, "Steps", value_of(j, "steps"));
  add_sampler(j, out.text);
  add_value(out.text, "CFG scale", value_of(j, "scale"));
  add_value(out.text, "Seed", value_of(j, "seed"));
  const std::string width = value_of(j, "width"), height = value_of(j, "height");
  if (!width.empty() && !height.empty()) add_value(out.text, "Size", str(width, 'x', height));
  add_value(out.text, "Model", text_of(text, "Source"));
  if (value_of(j, "request_type") == "Img2ImgRequest")
    add_value(out.text, "Denoising strength", value_of(j, "strength"));
  add_of_first_models(text_of(text, "Source"), out.text);
  add_others(j, out.text);
  return out;
}

}  // namespace

const PictureFormat& novelai() {
  static const PictureFormat f{"NovelAI", "a1111", read};
  return f;
}

}  // namespace ebb::cli::picture_formats
