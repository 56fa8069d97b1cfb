#include "base/parse_json.h"

#include <type_traits>

#include "base/json.h"
#include "base/json_size.h"

namespace ebb {

template <class Json>
Json parse_json(std::string_view text) {
  const JsonSize size = json_size(text);
  if (size.depth > json_depth_limit ||
      (std::is_same_v<Json, nlohmann::ordered_json> && size.names > json_names_limit))
    return Json(Json::value_t::discarded);
  return Json::parse(text, nullptr, false);
}

template nlohmann::json parse_json(std::string_view text);
template nlohmann::ordered_json parse_json(std::string_view text);

}  // namespace ebb
