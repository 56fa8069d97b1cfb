// attention_grad of a short sequence in one thread block: everything in shared memory, each warp
// owns 32 keys, and ds of a query block goes through shared memory for dq.
#pragma once

#include "ops/prim/attention_grad/cuda/blocks.cuh"

namespace ebb::ops::cuda {

// `Warps` * 32 keys; a block is the queries whose dq the warps compute together.
template <int D, int Warps>
struct GradHeadShape {
  static constexpr int threads = 32 * Warps;
  static constexpr int keys = 32 * Warps;
  static constexpr int block = 16 * Warps;
  static constexpr int key_bytes = Tile<D>::bytes(keys);
  static constexpr int ds_bytes = Tile<block>::bytes(keys);
  static constexpr int queries(int t) { return (t + block - 1) / block * block; }
  static constexpr int bytes(int t) {
    return 2 * key_bytes + ds_bytes + queries(t) * (2 * Tile<D>::row_bytes + 8);
  }
};

// Shared memory layout.
struct GradHeadMemory {
  uint32_t k, v, q, dout, ds;
  float *lse_log2, *delta;
};

template <class T, int D, int Warps>
__device__ __forceinline__ GradHeadMemory layout_head(unsigned char* memory, int queries) {
  using S = GradHeadShape<D, Warps>;
  const uint32_t k = shared_address(memory), v = k + S::key_bytes, ds = v + S::key_bytes;
  const uint32_t q = ds + S::ds_bytes, dout = q + Tile<D>::bytes(queries);
  auto* const lse_log2 = reinterpret_cast<float*>(memory + (dout - k) + Tile<D>::bytes(queries));
  return {k, v, q, dout, ds, lse_log2, lse_log2 + queries};
}

// Starts the copies of rows [0, rows of the tile), a block of `Count` at a time.
template <int D, int Count, int Threads, class T>
__device__ __forceinline__ void copy_blocks(uint32_t to, const Rows<T>& rows, int count) {
#pragma unroll 1
  for (int begin = 0; begin < count; begin += Count)
    copy_rows<D, Count, Threads>(to + Tile<D>::bytes(begin), rows, begin, threadIdx.x);
}

// ds^T of 32 keys (from `key` on) and 32 queries (from `query` on) into the tile of ds^T.
template <class T, int Block>
__device__ __forceinline__ void store_ds(uint32_t tile, const float (&ds)[2][4][4], int key,
                                         int query, int lane) {
#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int n = 0; n < 4; ++n)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = key + 16 * m + 8 * h + lane / 4;
        store_shared(tile + Tile<Block>::offset(row, query / 8 + n) + lane % 4 * 4,
                     pack<T>(ds[m][n][2 * h], ds[m][n][2 * h + 1]));
      }
}

// dq of a query block: 32 rows and half of the columns per warp.
template <class T, int D, int Warps>
__device__ __forceinline__ void finish_queries(const GradParams& p, const GradHeadMemory& at,
                                               const Rows<T>& dq, int begin) {
  using S = GradHeadShape<D, Warps>;
  constexpr int half = (D / 8 + 1) / 2;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, row = warp / 2 * 32;
  const int first = warp % 2 * half;  // in groups of 8 columns
  float c[2][half][4];
  clear(c);
  const uint32_t w =
      at.ds + Tile<S::block>::offset(lane % 8 + lane / 16 * 8, row / 8 + (lane / 8 & 1));
  const uint32_t x = at.k + Tile<D>::offset(lane % 16, first + lane / 16);
  const uint32_t last = at.k + Tile<D>::offset(lane % 16, first + half - 1);
#pragma unroll 1
  for (int j = 0; j < p.z.s; j += 16) {
    uint32_t a[2][4];
#pragma unroll
    for (int m = 0; m < 2; ++m)
      load_matrices<true>(a[m], Tile<S::block>::pair(w + Tile<S::block>::bytes(j), m));
#pragma unroll
    for (int d = 0; d < half / 2; ++d) {
      uint32_t b[4];
      load_matrices<true>(b, Tile<D>::pair(x + Tile<D>::bytes(j), d));
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        mma<T>(c[m][2 * d], a[m], b[0], b[1]);
        mma<T>(c[m][2 * d + 1], a[m], b[2], b[3]);
      }
    }
    if (half % 2 == 1 && first + half <= D / 8) {
      uint32_t b[2];
      load2_transposed(b, last + Tile<D>::bytes(j));
#pragma unroll
      for (int m = 0; m < 2; ++m) mma<T>(c[m][half - 1], a[m], b[0], b[1]);
    }
  }
  const Rows<T> to{dq.first + first * 8, dq.row_stride, dq.count, dq.width - first * 8};
  write_scaled<T, 2, 8 * half>(to, begin + row, c, p.z.scale, lane);
}

// dq, dk and dv of a head of at most 32 * Warps keys whose queries fit into shared memory.
// grid: one thread block per head.  sums: f32, in the order of the keys and queries.
// deterministic: yes.
template <class T, int D, int Warps>
__global__ __launch_bounds__(32 *
                             Warps) void attention_grad_head(const __grid_constant__ GradParams p) {
  begin();
  using S = GradHeadShape<D, Warps>;
  extern __shared__ __align__(1024) unsigned char memory[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, queries = S::queries(p.z.t);
  const int head = blockIdx.x;
  const GradHeadMemory at = layout_head<T, D, Warps>(memory, queries);
  copy_rows<D, S::keys, S::threads>(at.k, rows_of<T>(p.z, p.z.k, p.k, head, p.z.s), 0, threadIdx.x);
  copy_rows<D, S::keys, S::threads>(at.v, rows_of<T>(p.z, p.z.v, p.v, head, p.z.s), 0, threadIdx.x);
  copy_blocks<D, S::block, S::threads>(at.q, rows_of<T>(p.z, p.z.q, p.q, head, p.z.t), queries);
  copy_blocks<D, S::block, S::threads>(at.dout, dout_rows_of<T>(p, head), queries);
  commit_copies();
  compute_row_stats<T, S::threads>(p, at.lse_log2, at.delta, head, queries);
  float dk[2][D / 8][4], dv[2][D / 8][4], ds[2][4][4];
  clear(dk);
  clear(dv);
  const int first = warp * 32;
  const WarpKeys keys{at.k + Tile<D>::bytes(first), at.v + Tile<D>::bytes(first), p.z.s - first};
  wait_copies<0>();
  __syncthreads();  // everything is in shared memory
#pragma unroll 1
  for (int begin = 0; begin < p.z.t; begin += S::block) {
#pragma unroll 1
    for (int i = 0; i < S::block && begin + i < p.z.t && keys.count > 0; i += 32) {
      const int row = begin + i;
      const QueryBlock b{at.q + Tile<D>::bytes(row), at.dout + Tile<D>::bytes(row),
                         at.lse_log2 + row, at.delta + row};
      add_queries<T, 2, 4, D>(dk, dv, ds, keys, b, p.z.scale_log2, lane);
      store_ds<T, S::block>(at.ds, ds, first, i, lane);
    }
    __syncthreads();  // ds of the block is complete
    finish_queries<T, D, Warps>(p, at, rows_of<T>(p.z, p.dq_lies, p.dq, head, p.z.t), begin);
    __syncthreads();  // and may be overwritten
  }
  write_scaled<T, 2, D>(rows_of<T>(p.z, p.dk_lies, p.dk, head, p.z.s), first, dk, p.z.scale, lane);
  write_scaled<T, 2, D>(rows_of<T>(p.z, p.dv_lies, p.dv, head, p.z.s), first, dv, 1.f, lane);
}

}  // namespace ebb::ops::cuda
