// Settings of a command from a picture (--like) or a JSON file (--config), which flags win over.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "apps/cli/command.h"

namespace ebb::cli {

// The keyword of the settings in a picture, beside A1111's `parameters`.
constexpr std::string_view settings_keyword = "ebb";

// The fields as a JSON object, with `diffusion` and the picture's number: what set_like() takes.
std::string settings_json(const std::vector<Field>& fields, const FieldTexts& diffusion,
                          int64_t image);

// Sets the fields, and `diffusion`, that a JSON object of settings names. Throws Error, naming
// `subject`, for unknown names and wrong values.
void set_settings(const std::vector<Field>& fields, FieldTexts& diffusion, const std::string& json,
                  const std::string& subject);
void set_config(const std::vector<Field>& fields, FieldTexts& diffusion, const std::string& file);

struct Like {
  int64_t image = -1;  // its number; -1: the picture does not say
  std::string model;   // its name where the picture is of another program
  // Flags that must be given beside another program's settings, and why.
  struct Need {
    std::string field, why;
  };
  std::vector<Need> needs;
  std::vector<std::string> unused;  // settings of another program that have no counterpart
};
// Sets the fields to what made a picture: by ebb all of them, by another program what the text of
// AUTOMATIC1111's web UI says. Throws Error where there are no settings.
Like set_like(const std::vector<Field>& fields, FieldTexts& diffusion, const std::string& picture);

}  // namespace ebb::cli
