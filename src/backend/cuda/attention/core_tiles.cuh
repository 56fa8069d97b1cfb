// Operands of wgmma (sm_90a) stored as 8 x 8 core matrices without a swizzle, so that one tile can
// be read in either major order, for any number of chunks per row.
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

// Rows are m or n: from row `row` on, elements [8 chunk, 8 chunk + 16) of the rows are k.
__device__ __forceinline__ uint64_t rows_operand(const CoreTile& t, int row, int chunk) {
  return matrix_descriptor(0, t.at + row * 16 + chunk * t.stride, t.stride, 128);
}
// Rows are k: rows [row, row + 16); the elements of a row from chunk `chunk` on are m or n.
__device__ __forceinline__ uint64_t columns_operand(const CoreTile& t, int row, int chunk) {
  return matrix_descriptor(0, t.at + row * 16 + chunk * t.stride, 128, t.stride);
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
    wgmma<T, 0, 0>(c, matrix_descriptor(0, zeros, last - zeros, 128),
                   rows_operand(b, b_row, D / 8 - 2), 1);
  }
}

// sum [64, D] += weights [64, N] times the N rows of x from `row` on.
template <class T, int D, int N>
__device__ __forceinline__ void add_weighted_core_tile(float (&sum)[D / 8][4],
                                                       const uint32_t (&a)[N / 16][4],
                                                       const CoreTile& x, int row) {
#pragma unroll
  for (int k = 0; k < N / 16; ++k) wgmma<T, 1>(sum, a[k], columns_operand(x, row + 16 * k, 0), 1);
}

}  // namespace ebb::cuda
