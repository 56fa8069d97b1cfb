#include "apps/server/inspect.h"

#include <algorithm>
#include <filesystem>

#include "apps/cli/generate_flags.h"
#include "apps/cli/picture_formats.h"
#include "apps/cli/settings_file.h"
#include "apps/server/fault.h"
#include "apps/server/settings.h"
#include "base/json.h"
#include "base/parse_json.h"
#include "base/text.h"

namespace ebb::server {
namespace {

bool names_files(std::string_view name) {
  return std::ranges::find(file_settings(), name, &FileSetting::name) != file_settings().end();
}

// Pictures that were read are not in the picture.
bool is_left_out(std::string_view name) {
  for (const std::string_view f :
       {"init", "mask", "control", "control_model", "control_mask", "control_blocks",
        "image_encoder", "lora_dir", "embedding_dir", "variant", "first_image", "batch", "quality"})
    if (name == f) return true;
  return false;
}

// Of a file, or of several between semicolons.
std::string without_folders(const std::string& text) {
  return separated(parted(text, ";"), ";", [](std::string_view one) {
    return std::filesystem::path(one).filename().string();
  });
}

Json changed_fields(cli::GenerateFlags& made) {
  cli::GenerateFlags plain;
  const auto now = made.settings(true), before = plain.settings(true);
  Json out = Json::object();
  for (size_t i = 0; i < now.size(); ++i) {
    const std::string text = field_text(now[i]);
    if (text == field_text(before[i]) || is_left_out(now[i].name)) continue;
    Json value = parse_json<Json>(fields_json({now[i]}))[now[i].name];
    if (names_files(now[i].name)) value = without_folders(text);
    out[now[i].name] = std::move(value);
  }
  return out;
}

}  // namespace

Json inspected(const std::map<std::string, std::string>& text) {
  cli::GenerateFlags made;
  Json notes = Json::array();
  cli::Like like;
  try {
    like = cli::set_like_texts(made.settings(true), made.diffusion, text, "picture");
  } catch (const Error& e) {
    throw HttpFault(422, "no_settings", e.what(), "image");
  }
  Json settings = changed_fields(made);
  settings["n"] = 1;
  if (!like.model.empty()) settings["model"] = like.model;
  for (const auto& need : like.needs) notes.push_back(need.why);
  for (const std::string& s : like.unused) notes.push_back("not followed: " + s);
  if (like.image > 0) settings["first_image"] = like.image;
  return {{"parameters", cli::infotext_of(text)},
          {"settings", std::move(settings)},
          {"notes", std::move(notes)}};
}

}  // namespace ebb::server
