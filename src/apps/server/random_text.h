// Names that cannot be guessed.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ebb::server {

// So many of these signs, of the system's random numbers; at most 256 signs.
std::string random_text(size_t length, std::string_view signs = "0123456789abcdef");

}  // namespace ebb::server
