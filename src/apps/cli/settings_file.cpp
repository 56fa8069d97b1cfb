#include "apps/cli/settings_file.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "apps/cli/picture_formats.h"
#include "base/by_flag.h"
#include "base/error.h"
#include "base/fields.h"
#include "base/json.h"
#include "base/names.h"
#include "base/parse_json.h"
#include "base/text.h"
#include "base/text_list.h"
#include "diffusion/config.h"
#include "io/file.h"
#include "io/picture_file.h"
#include "pipeline/infotext.h"
#include "pipeline/mode_parameters.h"
#include "pipeline/noise_parameters.h"

namespace ebb::cli {
namespace {

using Json = nlohmann::ordered_json;

// What a text of the web UI says, by its key, in ebb's fields. Its empty ones mean nothing here.
struct Counterpart {
  std::string_view key, field;
};
constexpr Counterpart counterparts[] = {
    {"Steps", "steps"},
    {"Sampler", "sampler"},
    {"Schedule type", "schedule"},
    {"Seed", "seed"},
    {"CFG scale", "guidance"},
    {"Size", "size"},
    {"Clip skip", "clip_skip"},
    {"Image CFG scale", "image_guidance"},
};
// Named by other flags or by others of them.
constexpr std::string_view without_effect[] = {"Model", "Model hash", "Version", "Lora hashes"};
constexpr std::string_view of_modes[] = {
    "Denoising strength", "Mask blur",           "Masked content", "Mask mode",
    "Inpaint area",       "Masked area padding", "Hires upscale",  "Hires resize",
    "Hires steps",        "Hires upscaler",      "Refiner",        "Tiling",
    "Refiner loras",      "Refiner switch at"};
// What the web UI writes of a mask where it is not its usual.
constexpr std::string_view of_masks[] = {"Mask blur", "Masked content", "Mask mode", "Inpaint area",
                                         "Masked area padding"};

Json parsed(const std::string& text, const std::string& subject) {
  JsonObject read = json_object(text);
  require(read.fault.empty(), subject, ": ", read.fault);
  return std::move(read.value);
}

using SetField = std::function<void(std::string_view, const std::string&)>;

std::optional<std::pair<double, double>> width_and_height(const std::string& text) {
  const auto sides = parted(text, "x");
  if (sides.size() != 2) return {};
  const auto width = as_number(sides[0]), height = as_number(sides[1]);
  if (!width || !height) return {};
  return std::pair{*width, *height};
}

// The web UI says the scale, or the size that it was given: of a side that is 0 by the other one's
// scale. None where the picture was cropped to that size.
std::string hires_scale(const Infotext& t) {
  const std::string resize = t.value("Hires resize");
  if (resize.empty()) return t.value("Hires upscale");
  const auto from = width_and_height(t.value("Size")), to = width_and_height(resize);
  if (!from || !to) return "";
  const auto [width, height] = *from;
  const auto [wide, high] = *to;
  if (wide > 0 && high > 0 && wide * height != high * width) return "";
  const double before = wide > 0 ? width : height, after = wide > 0 ? wide : high;
  double scale = after / before;
  while (scale * before < after) scale = std::nextafter(scale, 2 * scale);
  return std::isfinite(scale) ? number_text(scale) : "";
}

void set_hires(const Infotext& t, const SetField& set, Like& out) {
  const std::string menu = t.value("Hires upscaler"), own = hires_upscaler(menu),
                    scale = hires_scale(t);
  if (scale.empty()) {
    out.needs.push_back({"hires", str("the picture was enlarged from ", t.value("Size"), " to ",
                                      t.value("Hires resize"),
                                      " and cropped, which ebb does not do; --hires SCALE "
                                      "enlarges it whole")});
    return;
  }
  if (own.empty() && !menu.empty())
    out.needs.push_back({"hires", str("the picture was enlarged by the network ", menu,
                                      "; --hires ", scale, ":FILE names it")});
  set("hires",
      str(scale, ':', own, ':', t.value("Hires steps"), ':', t.value("Denoising strength")));
}

void set_mask(const Infotext& t, const SetField& set, Like& out) {
  const auto has = [&](std::string_view key) { return !t.value(key).empty(); };
  if (std::ranges::none_of(of_masks, has)) return;
  set("mask_blur", has("Mask blur") ? t.value("Mask blur") : "0");
  out.needs.push_back({"mask", "the picture was made with a mask; --mask FILE names it"});
  if (const std::string c = masked_content_of(t.value("Masked content")); !c.empty())
    set("masked_content", c);
  if (t.value("Mask mode") == "Inpaint not masked") set("mask_invert", "true");
  if (t.value("Inpaint area") != "Only masked") return;
  set("only_masked", "true");
  if (has("Masked area padding")) set("mask_padding", t.value("Masked area padding"));
}

// What runs from a picture and runs of several passes say. Pictures and networks are named by
// flags.
void set_modes(const Infotext& t, const SetField& set, Like& out) {
  const auto has = [&](std::string_view key) { return !t.value(key).empty(); };
  if (has("Hires upscale") || has("Hires resize")) {
    set_hires(t, set, out);
  } else if (has("Denoising strength")) {
    set("strength", t.value("Denoising strength"));
    out.needs.push_back({"init", "the picture was made from another one; --init FILE names it"});
  }
  set_mask(t, set, out);
  if (has("Refiner"))
    out.needs.push_back(
        {"refiner", str("the last steps were made by the model ", t.value("Refiner"),
                        "; --refiner FILE:", t.value("Refiner switch at"), " names it")});
  if (has("Refiner loras"))
    out.needs.push_back({"refiner_lora", str("the refiner had ", t.value("Refiner loras"),
                                             "; --refiner-lora FILE:strength names it")});
  if (t.value("Tiling") == "True") set("tiling", "both");
}

// Readers of PNG leave out texts whose checksum is wrong.
bool has_damaged_settings(const std::string& picture) {
  constexpr int64_t limit = int64_t{1} << 30;
  const std::string bytes = io::read_whole_file(picture, "image", limit);
  return std::ranges::any_of(std::array{"tEXt", "zTXt", "iTXt"}, [&](const char* chunk) {
    return bytes.find(str(chunk, settings_keyword, '\0')) != bytes.npos;
  });
}

// Of A1111's web UI, or what another program says by its keys.
Like set_infotext(const std::vector<Field>& fields, const Infotext& t, const char* dialect) {
  const auto set = [&](std::string_view name, const std::string& value) {
    set_field(find_field(fields, name, "like"), value);
  };
  set("prompt", t.prompt);
  set("negative", t.negative);
  set("dialect", dialect);
  set("schedule", "auto");
  Like out{.model = t.value("Model")};
  constexpr size_t digits = 10;  // older versions wrote 8 of another hash
  if (t.value("Model hash").size() == digits) out.hashes["model"] = t.value("Model hash");
  for (const auto& [key, value] : t.values) {
    const auto known = std::ranges::find(counterparts, key, &Counterpart::key);
    if (known != std::end(counterparts))
      set(known->field, same_name(value, "Automatic") ? "auto" : value);
    else if (!is_noise_key(key) &&
             std::ranges::find(without_effect, key) == std::end(without_effect) &&
             std::ranges::find(of_modes, key) == std::end(of_modes))
      out.unused.push_back(str(key, ": ", value));
  }
  set("noise_options", noise_options_of(t));
  set_modes(t, set, out);
  return out;
}

// How a model is sampled, instead of as the checkpoint says: a flag of add_overrides().
bool is_override(const std::vector<Field>& fields, const std::string& name) {
  DiffusionConfig defaults;
  const auto has = [&](const std::vector<Field>& all) {
    return std::ranges::find(all, name, &Field::name) != all.end();
  };
  return !has(fields) && has(fields_of(defaults)) && !only_training(name);
}

bool is_list_of(const std::vector<Field>& fields, const std::string& name) {
  const auto field = std::ranges::find(fields, name, &Field::name);
  return field != fields.end() && is_list(*field);
}

// The texts of a flag that may be given more than once: one text, or a list of them.
Json joined(const Json& value, const std::string& subject) {
  require(value != "", subject, " says nothing (got '')");
  if (!value.is_array()) return value;
  TextList out;
  for (const Json& text : value) {
    require(text.is_string(), subject, ": expected a string or a list of strings (got ",
            value.dump(), ")");
    require(text != "", subject, " says nothing (got '')");
    out.texts.push_back(text.get<std::string>());
  }
  return out.text();
}

// What the command line would be given: numbers are texts of flags that take texts.
Json as_given(const std::vector<Field>& fields, const std::string& name, const Json& value) {
  const auto field = std::ranges::find(fields, name, &Field::name);
  if (field == fields.end()) return value;
  const bool text = std::holds_alternative<std::string*>(field->ref);
  return text && value.is_number() ? Json(value.dump()) : value;
}

}  // namespace

std::string settings_json(const std::vector<Field>& fields, const FieldTexts& diffusion,
                          int64_t image, const HashTexts& hashes) {
  Json j = parse_json<Json>(fields_json(fields));
  for (const auto& [name, value] : diffusion) j["diffusion"][name] = value;
  if (image >= 0) j["image"] = image;
  for (const auto& [name, hash] : hashes) j["hashes"][name] = hash;
  return j.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void set_settings(const std::vector<Field>& fields, FieldTexts& diffusion, const std::string& json,
                  const std::string& subject) {
  Json j = parsed(json, subject);
  FieldTexts found;
  if (const auto at = j.find("diffusion"); at != j.end()) {
    require(at->is_object(), subject, ": diffusion must be an object of names and texts");
    for (const auto& [name, value] : at->items())
      found.emplace_back(name, value.is_string() ? value.get<std::string>() : value.dump());
    j.erase("diffusion");
  }
  set_fields_json(fields, j.dump(), subject);
  diffusion = std::move(found);
}

void set_config(std::vector<Field> fields, FieldTexts& diffusion, const std::string& file) {
  constexpr int64_t limit = 1 << 24;
  const std::string subject = str("config ", file);
  Json given = parsed(io::read_whole_file(file, "config", limit), subject), j = Json::object();
  std::erase_if(fields, [](const Field& f) { return f.name == "config" || f.name == "like"; });
  FieldTexts overrides;
  for (auto& [flag, value] : given.items()) {
    std::string name = flag;
    std::ranges::replace(name, '-', '_');
    require(name != "config" && name != "like", subject, ": '", flag,
            "' is a flag of the command line alone: ", flag_of(name), " FILE");
    require(!j.contains(name), subject, ": '", flag, "' is given more than once");
    if (is_override(fields, name))
      overrides.emplace_back(name, value.is_string() ? value.get<std::string>() : value.dump());
    else
      j[name] = is_list_of(fields, name) ? joined(value, str(subject, ": '", flag, "'"))
                                         : as_given(fields, name, value);
  }
  set_settings(fields, diffusion, j.dump(), subject);
  std::ranges::move(overrides, std::back_inserter(diffusion));
}

Like set_like_texts(const std::vector<Field>& fields, FieldTexts& diffusion,
                    const std::map<std::string, std::string>& text, const std::string& picture) {
  if (const auto own = text.find(std::string(settings_keyword)); own != text.end()) {
    const std::string subject = str("like ", picture);
    Json j = parsed(own->second, subject);
    Like out;
    if (const auto image = j.find("image"); image != j.end()) {
      require(image->is_number_integer(), subject, ": image must be a number");
      out.image = image->get<int64_t>();
      j.erase("image");
    }
    if (const auto hashes = j.find("hashes"); hashes != j.end()) {
      require(hashes->is_object(), subject, ": hashes must be an object of names and texts");
      for (const auto& [name, hash] : hashes->items())
        if (hash.is_string()) out.hashes[name] = hash.get<std::string>();
      j.erase("hashes");
    }
    set_settings(fields, diffusion, j.dump(), subject);
    return out;
  }
  if (const auto other = other_settings(text)) {
    Like out = set_infotext(fields, other->found.text, other->format->dialect);
    if (!other->found.loras.empty())
      set_field(find_field(fields, "lora", "like"), separated(other->found.loras, ";"));
    return out;
  }
  const auto a1111 = text.find("parameters");
  require(
      a1111 != text.end() || !(text.contains("prompt") || text.contains("workflow")),
      "like: the picture has a graph of ComfyUI without a sampler whose picture is shown; flags "
      "say the settings  ",
      picture);
  require(a1111 != text.end(), "like: the picture says nothing about how it was made  ", picture);
  const Infotext t = parse_infotext(a1111->second);
  require(!t.values.empty(), "like: the picture's text has no line of settings  ", picture);
  return set_infotext(fields, t, "a1111");
}

Like set_like(const std::vector<Field>& fields, FieldTexts& diffusion, const std::string& picture) {
  const auto text = by_flag("generate: --like", [&] { return io::read_picture_text(picture); });
  Like out = set_like_texts(fields, diffusion, text, picture);
  if (!text.contains(std::string(settings_keyword)) && has_damaged_settings(picture))
    out.unused.emplace_back(
        "ebb's own settings, which are damaged; the text of the web UI says less");
  return out;
}

}  // namespace ebb::cli
