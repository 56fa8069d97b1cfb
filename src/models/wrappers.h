// Prefixes of names under which containers put a network that has its file for itself.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace ebb {

constexpr std::array<std::string_view, 4> wrappers = {"", "model.", "module.", "net."};

// Other prefixes tell the components of a file apart.
inline bool wraps(std::string_view prefix) {
  return std::ranges::find(wrappers, prefix) != wrappers.end();
}

}  // namespace ebb
