// Numbers of bytes as people write them: "5GB", "800 MiB".
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ebb {

// What parse_size takes, for errors and help.
constexpr std::string_view size_forms =
    "a number and a unit: MB or M (10^6 bytes), GB or G (10^9), MiB (2^20) or GiB (2^30)";

// Bytes of "8GB", "1.5 GiB", "500m"; none for other texts and for less than a byte.
std::optional<int64_t> parse_size(std::string_view text);

}  // namespace ebb
