// JSON that others wrote, as a value of nlohmann's.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "base/json.h"

namespace ebb {

// Discarded (is_discarded()) for text that is no JSON or is nested too deep.
template <class Json = nlohmann::json>
Json parse_json(std::string_view text) {
  return nested_too_deep(text) ? Json(Json::value_t::discarded) : Json::parse(text, nullptr, false);
}

}  // namespace ebb
