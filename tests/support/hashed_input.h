// Inputs of golden cases: numbers that are a function of (name, index); the rule is stated in
// tools/golden/hashed_weights.py.
#pragma once

#include <cmath>
#include <string_view>
#include <utility>

#include "base/hash.h"
#include "core/tensor.h"

namespace ebb::testing {

// Uniform in [-scale, scale).
inline Tensor hashed_input(std::string_view name, Shape shape, double scale = std::sqrt(3.0)) {
  Tensor t(DType::f32, std::move(shape));
  const uint64_t seed = fnv1a(name);
  const auto out = t.span<float>();
  for (size_t i = 0; i < out.size(); ++i) {
    const uint64_t h = splitmix64(seed ^ i);
    out[i] = static_cast<float>((2 * (static_cast<double>(h >> 40) * 0x1p-24) - 1) * scale);
  }
  return t;
}

}  // namespace ebb::testing
