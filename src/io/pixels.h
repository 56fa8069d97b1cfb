// What the bytes of pictures mean as numbers of networks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace ebb::io {

// In [-1,1].
inline float signed_pixel(uint8_t v) { return static_cast<float>(v) / 127.5f - 1; }
// Of as many.
inline void signed_pixels(std::span<const uint8_t> from, std::span<float> to) {
  std::ranges::transform(from, to.begin(), signed_pixel);
}

// In [0,1].
inline void unit_pixels(std::span<const uint8_t> from, std::span<float> to) {
  std::ranges::transform(from, to.begin(), [](uint8_t v) { return static_cast<float>(v) / 255; });
}

}  // namespace ebb::io
