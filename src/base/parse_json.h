// JSON that others wrote, as a value of nlohmann's.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace ebb {

// Discarded (is_discarded()) for text that is no JSON or is nested deeper than json_depth_limit;
// where the order of names is kept, also for an object of more than json_names_limit.
template <class Json = nlohmann::json>
Json parse_json(std::string_view text);

// An object as its author wrote it, with its names in order.
struct JsonObject {
  nlohmann::ordered_json value;
  // What is wrong with the text, whose value is null then: "not JSON: unexpected end of input (line
  // 2, column 1)", a name that an object holds twice, too many names, too deep a nesting, another
  // kind of value. "" if nothing.
  std::string fault;
};
JsonObject json_object(std::string_view text);

// The parser is compiled once: each file that has one of its own takes a second.
extern template nlohmann::json parse_json(std::string_view text);
extern template nlohmann::ordered_json parse_json(std::string_view text);

}  // namespace ebb
