// Accumulators of wgmma in attention and its gradient (sm_90a): as operands in registers, and as
// tiles that TMA stores.
#pragma once

#include "backend/cuda/attention/tiles.cuh"
#include "backend/cuda/kit/wgmma.cuh"

namespace ebb::cuda {

// Weights of 64 rows and N columns, rounded to T, as an operand in registers.
template <class T, int N>
__device__ __forceinline__ void pack_weights(uint32_t (&a)[N / 16][4], const float (&w)[N / 8][4]) {
#pragma unroll
  for (int k = 0; k < N / 16; ++k) pack_operand<T>(a[k], w[2 * k], w[2 * k + 1]);
}

// Columns [8 n, 8 n + 16) of accumulators, scaled by row and packed; columns from 8 N on are zeros.
template <class T, int N>
__device__ __forceinline__ void pack_columns(uint32_t (&x)[4], const float (&c)[N][4], int n,
                                             const float (&factor)[2]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    x[i] = 0;
    if (n + i / 2 < N)
      x[i] = pack<T>(c[n + i / 2][i % 2 * 2] * factor[i % 2],
                     c[n + i / 2][i % 2 * 2 + 1] * factor[i % 2]);
  }
}

// Writes packed columns [column, column + 16) of a warpgroup's 64 rows to a tile in TMA's 128-byte
// swizzle, boxes of 64 columns `Next` bytes apart.
template <int Next = 0>
__device__ __forceinline__ void store_columns(uint32_t tile, int column, const uint32_t (&x)[4]) {
  const int lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane % 16;
  const int chunk = (column / 8 + lane / 16) % 8 ^ lane % 8;
  store_matrices(tile + row * 128 + column / 64 * Next + chunk * 16, x);
}

}  // namespace ebb::cuda
