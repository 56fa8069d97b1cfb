// Test helpers: pictures, and how far two of them are apart.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "core/tensor.h"

namespace ebb::testing {

// Smooth in all channels, so that lossy formats keep it.
inline Tensor gradient(int64_t h, int64_t w, int64_t c) {
  Tensor t(DType::u8, {h, w, c});
  uint8_t* p = t.span<uint8_t>().data();
  for (int64_t y = 0; y < h; ++y)
    for (int64_t x = 0; x < w; ++x)
      for (int64_t k = 0; k < c; ++k) *p++ = static_cast<uint8_t>(20 + 3 * y + 2 * x + 40 * k);
  return t;
}

inline int largest_difference(const Tensor& a, const Tensor& b) {
  EXPECT_EQ(a.type(), b.type());
  int most = 0;
  for (size_t i = 0; i < a.span<uint8_t>().size(); ++i)
    most = std::max(most, std::abs(a.span<uint8_t>()[i] - b.span<uint8_t>()[i]));
  return most;
}

}  // namespace ebb::testing
