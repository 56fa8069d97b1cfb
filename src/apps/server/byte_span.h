// A text as bytes, for what reads files in memory.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace ebb::server {

inline std::span<const uint8_t> byte_span(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

}  // namespace ebb::server
