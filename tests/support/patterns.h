// The pictures of golden runs, as control_run_golden.py makes them.
#pragma once

#include "core/tensor.h"

namespace ebb::testing {

// u8 [height,width,3]
inline Tensor pattern(int64_t height, int64_t width, int64_t seed) {
  Tensor out(DType::u8, {height, width, 3});
  uint8_t* to = out.span<uint8_t>().data();
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x)
      for (int64_t c = 0; c < 3; ++c)
        *to++ = static_cast<uint8_t>((y * (3 + seed) + x * 5 + c * 70 + y * x / 9 * seed) % 256);
  return out;
}

}  // namespace ebb::testing
