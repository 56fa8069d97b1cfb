// The JSON files of diffusers' folders.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace ebb {

// The object in a file of at most 1 MiB. Throws Error, which begins with `who` and names the file,
// for one that cannot be read or holds no object; `what` comes before the rule.
nlohmann::json read_folder_json(const std::string& path, std::string_view who,
                                std::string_view what = "");

}  // namespace ebb
