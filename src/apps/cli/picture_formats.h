// How pictures of other programs than A1111's web UI were made. A file of picture_formats/ reads
// the texts of one program; the build finds the files.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pipeline/infotext.h"

namespace ebb::cli {

// By keyword, as io::picture_text() gives them.
using TextsOfPicture = std::map<std::string, std::string>;

struct FoundSettings {
  // By the keys of A1111's web UI. What has no counterpart there is under the program's own.
  Infotext text;
  std::vector<std::string> loras = {};  // "name:strength[:of the text encoder]"
};

struct PictureFormat {
  const char* program;
  const char* dialect;  // whose rules its settings follow
  // None for texts that are not the program's.
  std::optional<FoundSettings> (*read)(const TextsOfPicture& text);
};
const std::vector<const PictureFormat*>& all_picture_formats();

struct OtherSettings {
  const PictureFormat* format;
  FoundSettings found;
};
// What a program of picture_formats/ wrote. A JSON object under `parameters`, where EXIF data and
// the clipboard have it, counts as texts by its keys. None where there is A1111's text, or nothing.
std::optional<OtherSettings> other_settings(const TextsOfPicture& text);
// A1111's text of a picture, or such a text of what another program says, with LoRAs as tags behind
// the prompt; "" where there is none.
std::string infotext_of(const TextsOfPicture& text);

// ---- for the files of picture_formats/
// "" where there is none. Throws Error for one of more than 2 MB.
const std::string& text_of(const TextsOfPicture& text, const std::string& keyword);
// Adds it where it says something.
void add_value(Infotext& text, std::string key, std::string value);
// "folder/name.safetensors" -> "name", of any system's paths.
std::string file_stem(std::string_view path);

}  // namespace ebb::cli
