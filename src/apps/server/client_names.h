// Names that clients choose: of jobs, of themselves, of files that they send.
#pragma once

#include <string_view>

#include "base/names.h"

namespace ebb::server {

constexpr size_t longest_id = 128;  // of a job or a client, in bytes

// One line of printable signs, of at most so many bytes.
inline bool is_name(std::string_view text, size_t longest) {
  return text.size() <= longest && printable(text) == text && text.find('\n') == text.npos;
}

}  // namespace ebb::server
