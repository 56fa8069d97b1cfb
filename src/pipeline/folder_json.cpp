#include "pipeline/folder_json.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "io/file.h"

namespace ebb {

nlohmann::json read_folder_json(const std::string& path, std::string_view who,
                                std::string_view what) {
  constexpr int64_t most = 1 << 20;  // bytes
  nlohmann::json out = nlohmann::json::parse(io::read_whole_file(path, who, most), nullptr, false);
  require(out.is_object(), who, ": ", what, "must be a JSON object  ", path);
  return out;
}

}  // namespace ebb
