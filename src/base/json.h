// JSON of structs with fields(): written for people and read back exactly.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/fields.h"

namespace ebb {

// Arrays and objects within each other that are read. nlohmann's copies, comparisons and dump() of
// a value call themselves at every level, so that the depth of what others wrote must be bounded.
constexpr int json_depth_limit = 64;

// Objects that keep the order of their names look through them for each.
constexpr size_t json_names_limit = 2048;

// Whether those in `text`, which need not be JSON, go deeper.
bool nested_too_deep(std::string_view text);

// The fields as one JSON object, in order, a field a line. Doubles keep every bit; infinities and
// NaN are strings, as JSON has no numbers for them.
std::string fields_json(const std::vector<Field>& fields);

// Sets the fields that the JSON object `text` names; the others stay. Throws Error, naming
// `subject`, for text that is no JSON object, unknown names (with the nearest), names given twice
// and values of another kind. No field is changed then. Gives the names of the fields that stayed.
std::vector<std::string> set_fields_json(const std::vector<Field>& fields, std::string_view text,
                                         std::string_view subject);

// "[\"a\",\"b\"]" and back; throws Error naming `subject`.
std::string strings_json(const std::vector<std::string>& strings);
std::vector<std::string> strings_from_json(std::string_view text, std::string_view subject);

}  // namespace ebb
