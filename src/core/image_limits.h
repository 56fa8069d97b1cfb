// How large images may be, whoever reads or makes them.
#pragma once

#include <cstdint>

namespace ebb {

constexpr int64_t longest_image_side = 16384;  // pixels
// Height x width: a processor's convolutions count what they compute of an image in 32 bits.
constexpr int64_t most_image_pixels = int64_t{1} << 27;

}  // namespace ebb
