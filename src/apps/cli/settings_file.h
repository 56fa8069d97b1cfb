// Settings of a command from a picture (--like) or a JSON file (--config), which flags win over.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "apps/cli/command.h"
#include "apps/cli/input_files.h"

namespace ebb::cli {

// The keyword of the settings in a picture, beside A1111's `parameters`.
constexpr std::string_view settings_keyword = "ebb";

// The fields as a JSON object, with `diffusion`, the picture's number (negative: a grid of all) and
// the hashes of what made it: what set_like() takes.
std::string settings_json(const std::vector<Field>& fields, const FieldTexts& diffusion,
                          int64_t image, const HashTexts& hashes);

// Sets the fields, and `diffusion`, that a JSON object of settings names. Throws Error, naming
// `subject`, for unknown names and wrong values.
void set_settings(const std::vector<Field>& fields, FieldTexts& diffusion, const std::string& json,
                  const std::string& subject);
// Those of a file: flags by their names, with hyphens or underscores; `diffusion` also takes what
// stands beside the fields.
void set_config(std::vector<Field> fields, FieldTexts& diffusion, const std::string& file);

struct Like {
  int64_t image = -1;  // its number; -1: the picture does not say
  HashTexts hashes;    // of the files that made it
  std::string model;   // its name where the picture is of another program
  // Flags that must be given beside another program's settings, and why.
  struct Need {
    std::string field, why;
  };
  std::vector<Need> needs;
  std::vector<std::string> unused;  // settings of another program that have no counterpart
};
// Sets the fields to what made a picture: by ebb all of them, by another program what the text of
// AUTOMATIC1111's web UI says, or the texts of one of picture_formats.h. Throws Error where there
// are no settings.
Like set_like(const std::vector<Field>& fields, FieldTexts& diffusion, const std::string& picture);
// The same of a picture's texts; `picture` is for errors.
Like set_like_texts(const std::vector<Field>& fields, FieldTexts& diffusion,
                    const std::map<std::string, std::string>& text, const std::string& picture);

}  // namespace ebb::cli
