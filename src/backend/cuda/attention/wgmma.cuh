// wgmma for attention (sm_90a): d [64, N] += a [64, 16] b [16, N] over a warpgroup, with a in
// shared memory or in registers. CoreTile operands are stored as 8 x 8 core matrices without
// swizzle, so that one tile can be read in either major order, for any number of chunks per row.
#pragma once

#include "backend/cuda/attention/tiles.cuh"
#include "backend/cuda/kit/wgmma.cuh"

namespace ebb::cuda {

// 16-bit rows in shared memory by columns of chunks: a chunk is 8 elements (16 bytes), and each
// column of chunks holds all rows consecutively.
struct CoreTile {
  uint32_t at;      // address of row 0 of chunk 0
  uint32_t stride;  // bytes from chunk to chunk
};
// Stride between chunk columns of a tile that is filled by rows: padded against bank conflicts.
constexpr int core_stride(int rows) { return rows * 16 + 16; }
constexpr int core_bytes(int width, int rows) { return width / 8 * core_stride(rows); }

// wgmma matrix descriptor without swizzle: leading and stride byte offsets of the core matrices.
__device__ __forceinline__ uint64_t core_operand(uint32_t at, uint32_t along, uint32_t across) {
  return uint64_t{across >> 4} << 32 | uint64_t{along >> 4} << 16 | (at & 0x3ffff) >> 4;
}
// Rows are m or n: from row `row` on, elements [8 chunk, 8 chunk + 16) of the rows are k.
__device__ __forceinline__ uint64_t rows_operand(const CoreTile& t, int row, int chunk) {
  return core_operand(t.at + row * 16 + chunk * t.stride, t.stride, 128);
}
// Rows are k: rows [row, row + 16); the elements of a row from chunk `chunk` on are m or n.
__device__ __forceinline__ uint64_t columns_operand(const CoreTile& t, int row, int chunk) {
  return core_operand(t.at + row * 16 + chunk * t.stride, 128, t.stride);
}

// Descriptor of a tile in TMA's 128-byte swizzle: rows of 64 elements, boxes of 64 columns `next`
// bytes apart. `at` is a multiple of 1024 except for offsets along a row. Rows may be m or n (64
// elements of k; `next` is ignored) or k.
__device__ __forceinline__ uint64_t swizzled_operand(uint32_t at, uint32_t next) {
  return uint64_t{1} << 62 | uint64_t{1024 >> 4} << 32 | uint64_t{next >> 4} << 16 |
         (at & 0x3ffff) >> 4;
}

// The same for a box of 16 columns in the 32-byte swizzle; `at` is a multiple of 256.
__device__ __forceinline__ uint64_t narrow_operand(uint32_t at) {
  return uint64_t{3} << 62 | uint64_t{256 >> 4} << 32 | (at & 0x3ffff) >> 4;
}

// Keeps the compiler from moving uses of wgmma accumulators across this point.
template <int N>
__device__ __forceinline__ void fence_accumulators(float (&c)[N][4]) {
#pragma unroll
  for (int n = 0; n < N; ++n)
    asm volatile("" : "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])::"memory");
}
template <int N>
__device__ __forceinline__ void fence_accumulators(uint32_t (&c)[N][4]) {
#pragma unroll
  for (int n = 0; n < N; ++n)
    asm volatile("" : "+r"(c[n][0]), "+r"(c[n][1]), "+r"(c[n][2]), "+r"(c[n][3])::"memory");
}
template <int P, int N>
__device__ __forceinline__ void fence_accumulators(float (&c)[P][N][4]) {
#pragma unroll
  for (int p = 0; p < P; ++p) fence_accumulators(c[p]);
}

// Makes this thread's writes to shared memory visible to wgmma (async proxy), after a barrier.
__device__ __forceinline__ void publish_to_wgmma() {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// *to += v as one vectorised reduction.
__device__ __forceinline__ void add_to(float4* to, const float (&v)[4]) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1,%2,%3,%4};" ::"l"(to), "f"(v[0]),
               "f"(v[1]), "f"(v[2]), "f"(v[3])
               : "memory");
#endif
}

// Starts the copies of `Chunks` chunks from `chunk` on, of `Count` rows: lanes go along a row
// first.
template <int Chunks, int Count, int Threads, class T>
__device__ __forceinline__ void copy_columns(const CoreTile& t, int row, const Rows<T>& rows,
                                             int begin, int chunk, int thread) {
  constexpr int step = Threads / Chunks;  // rows at a time
  const int r = thread / Chunks, c = chunk + thread % Chunks;
  const T* from = rows.first + (begin + r) * rows.row_stride + c * 8;
  const uint32_t to = t.at + (row + r) * 16 + c * t.stride;
  const bool wide = c * 8 < rows.width && thread < step * Chunks;
#pragma unroll
  for (int i = 0; i < (Count + step - 1) / step; ++i, from += step * rows.row_stride) {
    if ((Count % step != 0 || step > Count) && r + i * step >= Count) break;
    const bool valid = wide && begin + r + i * step < rows.count;
    if (Threads % Chunks == 0 || thread < step * Chunks)
      copy_async(to + i * step * 16, valid ? from : rows.first, valid);
  }
}

// Starts the copy of rows [begin, begin + Count) to the tile's rows from `row` on, by `Threads`
// threads.
template <int D, int Count, int Threads, class T>
__device__ __forceinline__ void copy_core_tile(const CoreTile& t, int row, const Rows<T>& rows,
                                               int begin, int thread) {
  constexpr int chunks = D / 8, group = chunks >= 8 ? 8 : 4, tail = chunks % group;
#pragma unroll
  for (int i = 0; i < chunks / group; ++i)
    copy_columns<group, Count, Threads>(t, row, rows, begin, i * group, thread);
  if constexpr (tail > 0)
    copy_columns<tail, Count, Threads>(t, row, rows, begin, chunks - tail, thread);
}

// c [64, N] = rows of a from a_row on times rows of b from b_row on, transposed. `zeros`: 1024
// bytes of them before a in shared memory, for widths that are no multiple of 16.
template <class T, int D, int N>
__device__ __forceinline__ void gemm_core_tiles(float (&c)[N / 8][4], const CoreTile& a, int a_row,
                                                const CoreTile& b, int b_row, uint32_t zeros) {
#pragma unroll
  for (int k = 0; k < D / 16; ++k)
    wgmma<T, 0, 0>(c, rows_operand(a, a_row, 2 * k), rows_operand(b, b_row, 2 * k), k > 0);
  if constexpr (D % 16 == 8) {
    const uint32_t last = a.at + a_row * 16 + (D / 8 - 1) * a.stride;
    wgmma<T, 0, 0>(c, core_operand(zeros, last - zeros, 128), rows_operand(b, b_row, D / 8 - 2), 1);
  }
}

// Weights of 64 rows and N columns, rounded to T, as an operand in registers.
template <class T, int N>
__device__ __forceinline__ void pack_weights(uint32_t (&a)[N / 16][4], const float (&w)[N / 8][4]) {
#pragma unroll
  for (int k = 0; k < N / 16; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      a[k][i] = pack<T>(w[2 * k + i / 2][i % 2 * 2], w[2 * k + i / 2][i % 2 * 2 + 1]);
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

// sum [64, D] += weights [64, N] times the N rows of x from `row` on.
template <class T, int D, int N>
__device__ __forceinline__ void add_weighted_core_tile(float (&sum)[D / 8][4],
                                                       const uint32_t (&a)[N / 16][4],
                                                       const CoreTile& x, int row) {
#pragma unroll
  for (int k = 0; k < N / 16; ++k) wgmma<T, 1>(sum, a[k], columns_operand(x, row + 16 * k, 0), 1);
}

// Named barriers of `threads` threads of a thread block: bar.sync waits, bar.arrive does not.
__device__ __forceinline__ void barrier_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void barrier_arrive_named(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}
// This thread's warpgroup, warp-uniform for the compiler.
__device__ __forceinline__ int warpgroup() { return __shfl_sync(~0u, threadIdx.x / 128, 0); }

}  // namespace ebb::cuda
