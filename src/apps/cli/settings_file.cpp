#include "apps/cli/settings_file.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/names.h"
#include "io/file.h"
#include "io/picture_file.h"
#include "pipeline/infotext.h"

namespace ebb::cli {
namespace {

using Json = nlohmann::ordered_json;

// What a text of the web UI says, by its key, in ebb's fields. Its empty ones mean nothing here.
struct Counterpart {
  std::string_view key, field;
};
constexpr Counterpart counterparts[] = {
    {"Steps", "steps"},         {"Sampler", "sampler"},    {"Schedule type", "schedule"},
    {"Seed", "seed"},           {"CFG scale", "guidance"}, {"Size", "size"},
    {"Clip skip", "clip_skip"},
};
constexpr std::string_view without_effect[] = {"Model", "Model hash", "Version"};

Json parsed(const std::string& text, const std::string& subject) {
  const std::string fault = json_fault(text);
  require(fault.empty(), subject, ": ", fault);
  Json j = Json::parse(text);
  require(j.is_object(), subject, ": must be a JSON object");
  return j;
}

Like set_infotext(const std::vector<Field>& fields, const std::string& text,
                  const std::string& picture) {
  const Infotext t = parse_infotext(text);
  require(!t.values.empty(), "like: the picture's text has no line of settings  ", picture);
  const auto set = [&](std::string_view name, const std::string& value) {
    set_field(find_field(fields, name, "like"), value);
  };
  set("prompt", t.prompt);
  set("negative", t.negative);
  set("dialect", "a1111");
  set("schedule", "auto");
  Like out{.model = t.value("Model")};
  for (const auto& [key, value] : t.values) {
    const auto known = std::ranges::find(counterparts, key, &Counterpart::key);
    if (known != std::end(counterparts))
      set(known->field, same_name(value, "Automatic") ? "auto" : value);
    else if (key == "RNG" && value == "CPU")
      set("noise_options", "generator=torch_cpu");
    else if (key != "RNG" && std::ranges::find(without_effect, key) == std::end(without_effect))
      out.unused.push_back(str(key, ": ", value));
  }
  return out;
}

}  // namespace

std::string settings_json(const std::vector<Field>& fields, const FieldTexts& diffusion,
                          int64_t image) {
  Json j = Json::parse(fields_json(fields));
  for (const auto& [name, value] : diffusion) j["diffusion"][name] = value;
  j["image"] = image;
  return j.dump();
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

void set_config(const std::vector<Field>& fields, FieldTexts& diffusion, const std::string& file) {
  constexpr int64_t limit = 1 << 24;
  set_settings(fields, diffusion, io::read_whole_file(file, "config", limit), str("config ", file));
}

Like set_like(const std::vector<Field>& fields, FieldTexts& diffusion, const std::string& picture) {
  const auto text = io::read_picture_text(picture);
  if (const auto own = text.find(std::string(settings_keyword)); own != text.end()) {
    const std::string subject = str("like ", picture);
    Json j = parsed(own->second, subject);
    Like out;
    if (const auto image = j.find("image"); image != j.end()) {
      require(image->is_number_integer(), subject, ": image must be a number");
      out.image = image->get<int64_t>();
      j.erase("image");
    }
    set_settings(fields, diffusion, j.dump(), subject);
    return out;
  }
  const auto a1111 = text.find("parameters");
  require(a1111 != text.end(), "like: the picture says nothing about how it was made  ", picture);
  return set_infotext(fields, a1111->second, picture);
}

}  // namespace ebb::cli
