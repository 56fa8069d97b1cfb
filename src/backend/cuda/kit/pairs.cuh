// Pairs of 16-bit elements in registers, as tensor cores take and give them.
#pragma once

#include <type_traits>

#include "backend/cuda/kit/prologue.cuh"

namespace ebb::cuda {

// Two floats as 16-bit elements, `low` in the lower half.
template <class T>
__device__ __forceinline__ uint32_t pack(float low, float high) {
  uint32_t r = 0;
#if __CUDA_ARCH__ >= 800
  if constexpr (std::is_same_v<T, __half>)
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
  else
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
#endif
  return r;
}

// The A operand (16 columns) of an MMA from the accumulators of its left and right 8 columns.
template <class T>
__device__ __forceinline__ void pack_operand(uint32_t (&a)[4], const float (&left)[4],
                                             const float (&right)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float(&c)[4] = i < 2 ? left : right;
    a[i] = pack<T>(c[i % 2 * 2], c[i % 2 * 2 + 1]);
  }
}

// Two 16-bit elements as floats.
template <class T>
__device__ __forceinline__ float2 unpack(uint32_t v) {
  if constexpr (std::is_same_v<T, __half>)
    return __half22float2(*reinterpret_cast<const __half2*>(&v));
  else
    return {__uint_as_float(v << 16), __uint_as_float(v & 0xffff0000u)};
}

// Stores four 8 x 8 matrices to shared memory (sm_90); lane i gives the address of row i % 8 of
// matrix i / 8.
__device__ __forceinline__ void store_matrices(uint32_t at, const uint32_t (&r)[4]) {
#if __CUDA_ARCH__ >= 900
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(at), "r"(r[0]),
               "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
#endif
}

}  // namespace ebb::cuda
