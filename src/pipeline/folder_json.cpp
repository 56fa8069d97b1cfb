#include "pipeline/folder_json.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/parse_json.h"
#include "io/file.h"

namespace ebb {

nlohmann::json read_folder_json(const std::string& path, std::string_view who,
                                std::string_view what) {
  constexpr int64_t most = 1 << 20;  // bytes
  const std::string text = io::read_whole_file(path, who, most);
  require(!nested_too_deep(text), who, ": ", what, "must be nested at most ", json_depth_limit,
          " deep  ", path);
  nlohmann::json out = parse_json(text);
  require(out.is_object(), who, ": ", what, "must be a JSON object  ", path);
  return out;
}

}  // namespace ebb
