// JSON that others wrote, as a value of nlohmann's.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace ebb {

// Objects that keep the order of their names look through them for each.
constexpr size_t json_names_limit = 2048;

// Discarded (is_discarded()) for text that is no JSON or is nested too deep; where the order of
// names is kept, also for an object of more than json_names_limit.
template <class Json = nlohmann::json>
Json parse_json(std::string_view text);

// The parser is compiled once: each file that has one of its own takes a second.
extern template nlohmann::json parse_json(std::string_view text);
extern template nlohmann::ordered_json parse_json(std::string_view text);

}  // namespace ebb
