// Numbers from a linear congruential generator, for tests of kernels against plain loops.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/tensor.h"

namespace ebb::test {

// Uniform in [low, high).
inline std::vector<float> random_floats(int64_t count, uint32_t seed, float low = -1,
                                        float high = 1) {
  std::vector<float> v(static_cast<size_t>(count));
  for (float& x : v) {
    seed = seed * 1664525u + 1013904223u;
    x = low + (high - low) * static_cast<float>(seed >> 8) / 16777216.0f;
  }
  return v;
}

// Rounded to the dtype.
inline Tensor random_tensor(DType dtype, Shape shape, uint32_t seed) {
  const std::vector<float> v = random_floats(shape.numel(), seed);
  Tensor t(DType::f32, std::move(shape));
  std::ranges::copy(v, t.span<float>().begin());
  return t.to(dtype);
}

}  // namespace ebb::test
