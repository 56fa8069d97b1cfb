// Pictures and masks that golden runs start from, by the rules of their generators.
#pragma once

#include <cstdint>

#include "core/tensor.h"

namespace ebb::testing {

inline Tensor golden_picture(int64_t height, int64_t width) {
  Tensor out(DType::u8, {height, width, 3});
  for (int64_t y = 0, i = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x)
      for (int64_t c = 0; c < 3; ++c, ++i)
        out.span<uint8_t>()[static_cast<size_t>(i)] =
            static_cast<uint8_t>((7 * x + 13 * y + 50 * c) % 256);
  return out;
}

inline Tensor golden_mask(int64_t height, int64_t width, int64_t shift = 0) {
  Tensor out(DType::u8, {height, width, 1});
  for (int64_t y = 0, i = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x, ++i)
      out.span<uint8_t>()[static_cast<size_t>(i)] =
          y - shift >= 16 && y - shift < 48 && x - shift >= 8 && x - shift < 40 ? 255 : 0;
  return out;
}

}  // namespace ebb::testing
