// JSON that others wrote, as a value of nlohmann's.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>
#include <type_traits>

#include "base/json.h"
#include "base/json_size.h"

namespace ebb {

// Objects that keep the order of their names look through them for each.
constexpr size_t json_names_limit = 2048;

// Discarded (is_discarded()) for text that is no JSON or is nested too deep; where the order of
// names is kept, also for an object of more than json_names_limit.
template <class Json = nlohmann::json>
Json parse_json(std::string_view text) {
  const JsonSize size = json_size(text);
  if (size.depth > json_depth_limit ||
      (std::is_same_v<Json, nlohmann::ordered_json> && size.names > json_names_limit))
    return Json(Json::value_t::discarded);
  return Json::parse(text, nullptr, false);
}

}  // namespace ebb
