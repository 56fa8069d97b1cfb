// Warp-level building blocks of attention on tensor cores (sm_80 on): tiles of 16-bit rows in
// shared memory, their fragments, and mma.sync m16n8k16 and m16n8k8 with f32 accumulators.
#pragma once

#include <type_traits>

#include "backend/cuda/kit/mma.cuh"
#include "backend/cuda/kit/pairs.cuh"

namespace ebb::cuda {

constexpr float kLog2e = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;

// 2^x, to 2 ulp.
__device__ __forceinline__ float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Reductions over the four lanes (a quad) that hold a row of an MMA accumulator; all four get the
// result.
__device__ __forceinline__ float quad_sum(float v) {
  v += __shfl_xor_sync(~0u, v, 1);
  return v + __shfl_xor_sync(~0u, v, 2);
}
__device__ __forceinline__ float quad_max(float v) {
  v = fmaxf(v, __shfl_xor_sync(~0u, v, 1));
  return fmaxf(v, __shfl_xor_sync(~0u, v, 2));
}

// ---- copies ------------------------------------------------------------------------------------

// 16 bytes from device memory to shared memory; zeros if not `valid` (`from` is not read then).
__device__ __forceinline__ void copy_async(uint32_t to, const void* from, bool valid) {
#if __CUDA_ARCH__ >= 800
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes)
               : "memory");
#endif
}

// ---- tiles -------------------------------------------------------------------------------------

// Rows of D 16-bit elements in shared memory, swizzled or padded so that the same 16-byte chunk of
// 8 rows covers all 32 banks. The first row is 1024-byte aligned.
template <int D>
struct Tile {
  static_assert(D % 8 == 0, "rows are whole 16-byte chunks");
  static constexpr int chunks = D / 8;
  static constexpr bool swizzled = D == 32 || D == 64 || D == 128 || D == 256;
  static constexpr int row_bytes = 2 * (swizzled || chunks % 2 == 1 ? D : D + 8);
  static constexpr int bytes(int rows) { return rows * row_bytes; }

  // Byte offset of a chunk of a row.
  __device__ static __forceinline__ uint32_t offset(int row, int chunk) {
    if constexpr (swizzled) chunk ^= D == 32 ? row >> 1 & 3 : row & 7;
    return row * row_bytes + chunk * 16;
  }
  // The address of the chunk 2 `k` behind `at`, the address of a row's chunk 0 or 1.
  __device__ static __forceinline__ uint32_t pair(uint32_t at, int k) {
    return swizzled ? at ^ (k * 32) : at + k * 32;
  }
};

// Rows of a head: `row_stride` elements from row to row; rows from `count` on and elements from
// `width` on read as zeros.
template <class T>
struct Rows {
  const T* first;
  int64_t row_stride;
  int count, width;
};

// Starts the copy of rows [begin, begin + Count) to the tile at `to`, by `Threads` threads.
template <int D, int Count, int Threads, class T>
__device__ __forceinline__ void copy_rows(uint32_t to, const Rows<T>& rows, int begin, int thread) {
  constexpr int chunks = Tile<D>::chunks, total = Count * chunks;
#pragma unroll
  for (int i = 0; i < (total + Threads - 1) / Threads; ++i) {
    const int at = i * Threads + thread, row = at / chunks, chunk = at % chunks;
    if (total % Threads != 0 && at >= total) break;
    const bool valid = begin + row < rows.count && chunk * 8 < rows.width;
    const T* const from = rows.first + (valid ? (begin + row) * rows.row_stride + chunk * 8 : 0);
    copy_async(to + Tile<D>::offset(row, chunk), from, valid);
  }
}

// Lane offsets for ldmatrix of 16 x 16 elements: rows by `lane % 16`, chunks by `lane / 16` (A by
// rows; B from rows that are k, transposed) ...
template <int D>
__device__ __forceinline__ uint32_t lane_by_16(int lane) {
  return Tile<D>::offset(lane % 16, lane / 16);
}
// ... or rows by `lane % 8` and `lane / 16` (B from rows that are n; A from rows that are k,
// transposed).
template <int D>
__device__ __forceinline__ uint32_t lane_by_8(int lane) {
  return Tile<D>::offset(lane % 8 + lane / 16 * 8, lane / 8 & 1);
}

__device__ __forceinline__ void store_shared(uint32_t at, uint32_t v) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(at), "r"(v) : "memory");
}

// ---- MMAs --------------------------------------------------------------------------------------

// Rows [16 M, D] of this warp as A fragments.
template <int M, int D>
struct RowsA {
  uint32_t full[M][D / 16 > 0 ? D / 16 : 1][4];
  uint32_t tail[M][2];  // the last 8 of an odd D / 8
};

// From a tile whose row 0 (of these rows) is at `tile`.
template <int M, int D>
__device__ __forceinline__ void load_a(RowsA<M, D>& a, uint32_t tile, int lane) {
  const uint32_t at = tile + lane_by_16<D>(lane);
#pragma unroll
  for (int m = 0; m < M; ++m) {
#pragma unroll
    for (int k = 0; k < D / 16; ++k)
      load_matrices<false>(a.full[m][k], Tile<D>::pair(at + Tile<D>::bytes(16 * m), k));
    if constexpr (D % 16 == 8)
      load2(a.tail[m], tile + Tile<D>::offset(16 * m + lane % 16, D / 8 - 1));
  }
}

// From device memory.
template <int M, int D, class T>
__device__ __forceinline__ void read_a(RowsA<M, D>& a, const Rows<T>& rows, int begin, int lane) {
  const auto two = [&](int row, int column) -> uint32_t {
    const bool valid = row < rows.count && column < rows.width;
    const T* const at = rows.first + row * rows.row_stride + column;
    return valid ? *reinterpret_cast<const uint32_t*>(at) : 0;
  };
#pragma unroll
  for (int m = 0; m < M; ++m) {
    const int row = begin + 16 * m + lane / 4, column = lane % 4 * 2;
#pragma unroll
    for (int k = 0; k < D / 16; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        a.full[m][k][i] = two(row + i % 2 * 8, 16 * k + i / 2 * 8 + column);
    if constexpr (D % 16 == 8)
#pragma unroll
      for (int i = 0; i < 2; ++i) a.tail[m][i] = two(row + i * 8, D - 8 + column);
  }
}

template <int M, int N>
__device__ __forceinline__ void clear(float (&c)[M][N][4]) {
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) c[m][n][i] = 0;
}

// c [16 M, 8 N] += a [16 M, D] times the N * 8 rows of the tile at `rows`, transposed.
template <class T, int M, int N, int D>
__device__ __forceinline__ void add_gemm_rows(float (&c)[M][N][4], const RowsA<M, D>& a,
                                              uint32_t rows, int lane) {
  static_assert(N % 4 == 0, "rows come in groups of 32");
  const uint32_t at = rows + lane_by_8<D>(lane);
#pragma unroll
  for (int k = 0; k < D / 16; ++k)
#pragma unroll
    for (int n = 0; n < N; n += 2) {
      uint32_t b[4];
      load_matrices<false>(b, Tile<D>::pair(at + Tile<D>::bytes(8 * n), k));
#pragma unroll
      for (int m = 0; m < M; ++m) {
        mma<T>(c[m][n], a.full[m][k], b[0], b[1]);
        mma<T>(c[m][n + 1], a.full[m][k], b[2], b[3]);
      }
    }
  if constexpr (D % 16 == 8)
#pragma unroll
    for (int n = 0; n < N; n += 4) {
      uint32_t b[4];
      load_matrices<false>(b, rows + Tile<D>::offset(8 * n + lane, D / 8 - 1));
#pragma unroll
      for (int m = 0; m < M; ++m)
#pragma unroll
        for (int i = 0; i < 4; ++i) mma8<T>(c[m][n + i], a.tail[m], b[i]);
    }
}

// The same with a's rows in shared memory, at `a`.
template <class T, int M, int N, int D>
__device__ __forceinline__ void add_gemm_tiles(float (&c)[M][N][4], uint32_t a, uint32_t rows,
                                               int lane) {
  static_assert(N % 4 == 0, "rows come in groups of 32");
  const uint32_t at = rows + lane_by_8<D>(lane), a_at = a + lane_by_16<D>(lane);
#pragma unroll
  for (int k = 0; k < D / 16; ++k) {
    uint32_t r[M][4];
#pragma unroll
    for (int m = 0; m < M; ++m)
      load_matrices<false>(r[m], Tile<D>::pair(a_at + Tile<D>::bytes(16 * m), k));
#pragma unroll
    for (int n = 0; n < N; n += 2) {
      uint32_t b[4];
      load_matrices<false>(b, Tile<D>::pair(at + Tile<D>::bytes(8 * n), k));
#pragma unroll
      for (int m = 0; m < M; ++m) {
        mma<T>(c[m][n], r[m], b[0], b[1]);
        mma<T>(c[m][n + 1], r[m], b[2], b[3]);
      }
    }
  }
  if constexpr (D % 16 == 8) {
    uint32_t r[M][2];
#pragma unroll
    for (int m = 0; m < M; ++m) load2(r[m], a + Tile<D>::offset(16 * m + lane % 16, D / 8 - 1));
#pragma unroll
    for (int n = 0; n < N; n += 4) {
      uint32_t b[4];
      load_matrices<false>(b, rows + Tile<D>::offset(8 * n + lane, D / 8 - 1));
#pragma unroll
      for (int m = 0; m < M; ++m)
#pragma unroll
        for (int i = 0; i < 4; ++i) mma8<T>(c[m][n + i], r[m], b[i]);
    }
  }
}

// The same from c = 0.
template <class T, int M, int N, int D>
__device__ __forceinline__ void gemm_rows(float (&c)[M][N][4], const RowsA<M, D>& a, uint32_t rows,
                                          int lane) {
  clear(c);
  add_gemm_rows<T>(c, a, rows, lane);
}
template <class T, int M, int N, int D>
__device__ __forceinline__ void gemm_tiles(float (&c)[M][N][4], uint32_t a, uint32_t rows,
                                           int lane) {
  clear(c);
  add_gemm_tiles<T, M, N, D>(c, a, rows, lane);
}

// sum [16 M, D] += w [16 M, 8 N], rounded to T, times the N * 8 rows of the tile at `rows`.
template <class T, int M, int N, int D>
__device__ __forceinline__ void add_weighted_rows(float (&sum)[M][D / 8][4],
                                                  const float (&w)[M][N][4], uint32_t rows,
                                                  int lane) {
  const uint32_t at = rows + lane_by_16<D>(lane);
#pragma unroll
  for (int k = 0; k < N / 2; ++k) {
    uint32_t a[M][4];
#pragma unroll
    for (int m = 0; m < M; ++m) pack_operand<T>(a[m], w[m][2 * k], w[m][2 * k + 1]);
#pragma unroll
    for (int d = 0; d < D / 16; ++d) {
      uint32_t b[4];
      load_matrices<true>(b, Tile<D>::pair(at + Tile<D>::bytes(16 * k), d));
#pragma unroll
      for (int m = 0; m < M; ++m) {
        mma<T>(sum[m][2 * d], a[m], b[0], b[1]);
        mma<T>(sum[m][2 * d + 1], a[m], b[2], b[3]);
      }
    }
    if constexpr (D % 16 == 8) {
      uint32_t b[2];
      load2_transposed(b, rows + Tile<D>::offset(16 * k + lane % 16, D / 8 - 1));
#pragma unroll
      for (int m = 0; m < M; ++m) mma<T>(sum[m][D / 8 - 1], a[m], b[0], b[1]);
    }
  }
}

// Writes c [16 M, D] to rows [begin, ...) of a head in device memory, row r times factor[m][h]
// (h: the upper or lower 8 of a group of 16). Neighbouring lanes trade halves of two groups of 8
// columns, so that an access fills sectors.
template <class T, int M, int D>
__device__ __forceinline__ void write_rows(const Rows<T>& to, int begin,
                                           const float (&c)[M][D / 8][4],
                                           const float (&factor)[M][2], int lane) {
  const int odd = lane % 2;
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = begin + 16 * m + 8 * h + lane / 4;
      T* const at = const_cast<T*>(to.first) + row * to.row_stride + lane % 4 * 2;
      const float f = factor[m][h];
#pragma unroll
      for (int d = 0; d + 1 < D / 8; d += 2) {
        const uint32_t a = pack<T>(c[m][d][2 * h] * f, c[m][d][2 * h + 1] * f);
        const uint32_t b = pack<T>(c[m][d + 1][2 * h] * f, c[m][d + 1][2 * h + 1] * f);
        const uint32_t other = __shfl_xor_sync(~0u, odd ? a : b, 1);
        const uint2 both = odd ? uint2{other, b} : uint2{a, other};
        if (row < to.count && 8 * (d + odd) < to.width)
          *reinterpret_cast<uint2*>(at + 8 * (d + odd) - 2 * odd) = both;
      }
      if constexpr (D / 8 % 2 == 1)
        if (row < to.count && D - 8 < to.width)
          *reinterpret_cast<uint32_t*>(at + D - 8) =
              pack<T>(c[m][D / 8 - 1][2 * h] * f, c[m][D / 8 - 1][2 * h + 1] * f);
    }
}

}  // namespace ebb::cuda
