// Files below a folder, by paths that do not leave it: no part of them may be "." or "..", and no
// symbolic link is followed, wherever it leads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/temporary.h"

namespace ebb::server {

// A folder as it is now, by a path that is trusted; none: it is not there.
Descriptor open_folder(const std::string& path);
// None where the path does not lead to a folder, or to a regular file. "": the folder itself.
Descriptor open_folder_beneath(const Descriptor& folder, std::string_view path);
Descriptor open_file_beneath(const Descriptor& folder, std::string_view path);
// A whole file; none where it is larger than `limit` bytes, too.
std::optional<std::string> read_beneath(const Descriptor& folder, std::string_view path,
                                        int64_t limit);

}  // namespace ebb::server
