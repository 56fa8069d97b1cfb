// "WIDTHxHEIGHT", as clients and texts of pictures write sizes.
#pragma once

#include <optional>
#include <string>
#include <utility>

namespace ebb::server {

// Its two parts, whatever they are; none without an x.
inline std::optional<std::pair<std::string, std::string>> sides_of(const std::string& size) {
  const size_t x = size.find('x');
  if (x == size.npos) return {};
  return std::pair(size.substr(0, x), size.substr(x + 1));
}

}  // namespace ebb::server
