// What kernels over the elements of tensors share: indices taken apart without division, device
// types of dtypes, elements of an access.
#pragma once

#include <cstdint>
#include <type_traits>

#include "backend/cuda/kit/prologue.cuh"
#include "base/fast_div.h"
#include "core/dtype.h"

namespace ebb::cuda {

// Calls f with a zero of the device type of a float dtype.
template <class F>
decltype(auto) visit_float(DType t, F&& f) {
  switch (t) {
    case DType::bf16: return f(__nv_bfloat16{});
    case DType::f16: return f(__half{});
    default: return f(float{});
  }
}

// A place in images of rows x columns pixels of `packs` accesses each.
struct Place {
  int64_t n, row, column, pack;
};
__device__ __forceinline__ Place place_of(int64_t i, int64_t rows, int64_t columns, int64_t packs) {
  const int64_t pixel = i / packs, line = pixel / columns, n = line / rows;
  return {n, line - n * rows, pixel - line * columns, i - pixel * packs};
}

// Elements of T in an access of 16 bytes.
template <class T>
inline constexpr int wide = 16 / static_cast<int>(sizeof(T));

// The elements of an access as floats, and back.
template <class T, int Count>
__device__ __forceinline__ Vec<float, Count> floats_of(const Vec<T, Count>& x) {
  Vec<float, Count> out;
  if constexpr (std::is_same_v<T, __nv_bfloat16> && Count % 2 == 0) {
    // A bf16 is the upper half of a float: one instruction each, if taken from words.
    const auto words = __builtin_bit_cast(Vec<uint32_t, Count / 2>, x);
#pragma unroll
    for (int k = 0; k < Count; ++k)
      out.v[k] = __uint_as_float(k % 2 ? words.v[k / 2] & 0xffff0000u : words.v[k / 2] << 16);
  } else {
#pragma unroll
    for (int k = 0; k < Count; ++k) out.v[k] = to_float(x.v[k]);
  }
  return out;
}
template <class T, int Count>
__device__ __forceinline__ Vec<T, Count> rounded_to(const Vec<float, Count>& x) {
  Vec<T, Count> out;
#pragma unroll
  for (int k = 0; k < Count; ++k) out.v[k] = from_float<T>(x.v[k]);
  return out;
}

}  // namespace ebb::cuda
