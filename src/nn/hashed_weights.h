// Hashed tensors: every weight and input of golden tests and of benches that two programs must
// agree on is a function of (name, index). The rule is stated in tools/golden/hashed_weights.py.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "nn/weights.h"

namespace ebb::nn {

// In [-1,1), exact in f32.
inline double hash_value(uint64_t name_hash, uint64_t index) {
  const uint64_t h = splitmix64(name_hash ^ index);
  return 2 * (static_cast<double>(h >> 40) * 0x1p-24) - 1;
}

inline Tensor hashed(std::string_view name, const Shape& shape, double scale, double offset = 0) {
  Tensor t(DType::f32, shape);
  const uint64_t seed = fnv1a(name);
  const auto values = t.span<float>();
  const auto count = static_cast<int64_t>(values.size());
#pragma omp parallel for schedule(static) if (count > 1000000)
  for (int64_t i = 0; i < count; ++i)
    values[static_cast<size_t>(i)] =
        static_cast<float>(offset + scale * hash_value(seed, static_cast<uint64_t>(i)));
  return t;
}

// A weight in the layout of files.
inline Tensor hashed_file_tensor(const std::string& name, const Shape& shape) {
  if (name.ends_with("map_noise.freqs")) return hashed(name, shape, 16);
  if (shape.rank() >= 2) {
    const auto fan_in = static_cast<double>(shape.numel() / shape[0]);
    return hashed(name, shape, std::sqrt(3 / fan_in));
  }
  return name.ends_with(".weight") ? hashed(name, shape, 0.1, 1) : hashed(name, shape, 0.1);
}

// In the network's layout. Computed buffers keep their values.
inline Tensor hashed_weight(const Weight& w) {
  if (w.spec.init == "sin_cos_2d") return initial_tensor(w, 0);
  return from_file(w, hashed_file_tensor(w.name, file_shape(w)));
}

// Of variance 1.
inline Tensor hashed_input(std::string_view name, const Shape& shape) {
  return hashed(name, shape, std::sqrt(3.0));
}

// Dot product of `v` with the signs number `k` of tensor `name`.
inline double projection(std::string_view name, int k, std::span<const float> v) {
  const uint64_t seed = fnv1a(std::string(name) + "#p" + std::to_string(k));
  double sum = 0;
  uint64_t i = 0;
  for (const float x : v) sum += hash_value(seed, i++) >= 0 ? double{x} : -double{x};
  return sum;
}

}  // namespace ebb::nn
