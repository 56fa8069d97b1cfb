// Base64 (RFC 4648, section 4).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "apps/server/byte_span.h"

namespace ebb::server {

std::string base64(std::span<const uint8_t> bytes);
inline std::string base64(std::string_view bytes) { return base64(byte_span(bytes)); }
// Blanks and line ends may stand anywhere, padding may be missing; none for other signs.
std::optional<std::string> base64_decoded(std::string_view text);

}  // namespace ebb::server
