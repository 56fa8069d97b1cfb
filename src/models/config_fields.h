// Fields of a config by name, for code that reads configs of any model.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>

#include "models/config.h"

namespace ebb {

// The field as text. Throws Error where the config has none of that name.
inline std::string text_in(ModelConfig config, std::string_view field) {
  return field_text(find_field(config.fields(), field, "config"));
}
// Of a field that is a whole number.
inline int64_t number_in(const ModelConfig& config, std::string_view field) {
  return parse_integer(text_in(config, field), field);
}
// None where the config has no such field.
inline std::optional<int64_t> find_number(ModelConfig config, std::string_view field) {
  const std::vector<Field> fields = config.fields();
  if (std::ranges::find(fields, field, &Field::name) == fields.end()) return {};
  return number_in(config, field);
}
inline void set_in(ModelConfig& config, std::string_view field, std::string_view text) {
  set_field(find_field(config.fields(), field, "config"), text);
}

}  // namespace ebb
