// attention_grad of long sequences on mma.sync: some thread blocks iterate over the queries for dk
// and dv, the others over the keys for dq. Both recompute the weights, so that nothing is
// accumulated across thread blocks.
#pragma once

#include "ops/prim/attention_grad/cuda/blocks.cuh"

namespace ebb::ops::cuda {

constexpr int kGradWarps = 4;
constexpr int kGradThreads = 32 * kGradWarps;
constexpr int kGradBlock = 64;  // queries or keys per shared memory stage
constexpr int kGradStages = 2;

// Groups of 16 rows per warp: key_m for dk and dv, query_m for dq.
template <int D>
struct GradRingShape {
  static constexpr int block_bytes = Tile<D>::bytes(kGradBlock);
  static constexpr int stats_bytes = 2 * kGradBlock * 4;  // lse_log2 and delta of a block
  static constexpr int key_m = D <= 72 ? 2 : 1;
  static constexpr int key_rows = 16 * key_m * kGradWarps;
  static constexpr int key_bytes =
      2 * Tile<D>::bytes(key_rows) + kGradStages * (2 * block_bytes + stats_bytes);
  static constexpr bool in_registers = D <= 72;
  static constexpr int query_m = D <= 128 ? 2 : 1;
  static constexpr int query_rows = 16 * query_m * kGradWarps;
  static constexpr int query_bytes = 2 * Tile<D>::bytes(query_rows) + kGradStages * 2 * block_bytes;
  static constexpr int bytes = key_bytes > query_bytes ? key_bytes : query_bytes;
};

// dk and dv of `key_rows` keys, for thread block `index`; summed in the order of the queries.
template <class T, int D, bool Masked>
__device__ __forceinline__ void differentiate_keys(const GradParams& p, int index) {
  using S = GradRingShape<D>;
  constexpr int m = S::key_m;
  extern __shared__ __align__(1024) unsigned char memory[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int head = index / p.key_tiles;
  const int tile = index % p.key_tiles * S::key_rows, first = tile + warp * 16 * m;
  const HeadMask mask(p.z, p.mask, head);
  const int blocks = Masked && tile >= mask.count ? 0 : (p.z.t + kGradBlock - 1) / kGradBlock;
  const int first_block = Masked ? mask.first_query(tile) / kGradBlock : 0;
  const uint32_t k_at = shared_address(memory), v_at = k_at + Tile<D>::bytes(S::key_rows);
  const uint32_t ring = v_at + Tile<D>::bytes(S::key_rows);
  const uint32_t stats = ring + kGradStages * 2 * S::block_bytes;
  const auto q = rows_of<T>(p.z, p.z.q, p.q, head, p.z.t), dout = dout_rows_of<T>(p, head);
  const auto fetch = [&](int j) {
    if (j < blocks) {
      const int slot = j % kGradStages, begin = j * kGradBlock;
      const uint32_t at = ring + slot * 2 * S::block_bytes;
      copy_rows<D, kGradBlock, kGradThreads>(at, q, begin, threadIdx.x);
      copy_rows<D, kGradBlock, kGradThreads>(at + S::block_bytes, dout, begin, threadIdx.x);
      const float* const from =
          (threadIdx.x < 16 ? p.lse_log2 : p.delta) + int64_t{head} * p.pitch + begin;
      if (threadIdx.x < 32)
        copy_async(stats + slot * S::stats_bytes + threadIdx.x * 16, from + threadIdx.x % 16 * 4,
                   true);
    }
    commit_copies();
  };
  copy_rows<D, S::key_rows, kGradThreads>(k_at, rows_of<T>(p.z, p.z.k, p.k, head, p.z.s), tile,
                                          threadIdx.x);
  copy_rows<D, S::key_rows, kGradThreads>(v_at, rows_of<T>(p.z, p.z.v, p.v, head, p.z.s), tile,
                                          threadIdx.x);
  fetch(first_block);
  float dk[m][D / 8][4], dv[m][D / 8][4], ds[m][4][4];
  clear(dk);
  clear(dv);
  const int own = Tile<D>::bytes(warp * 16 * m);
  const WarpKeys keys{k_at + own, v_at + own, (Masked ? mask.count : p.z.s) - first};
#pragma unroll 1
  for (int j = first_block; j < blocks; ++j) {
    wait_copies<0>();
    __syncthreads();  // block j is complete, block j - 1 no longer read
    fetch(j + 1);
    const int slot = j % kGradStages, at = slot * 2 * S::block_bytes;
    const float* const lse_log2 =
        reinterpret_cast<const float*>(memory + (stats - k_at) + slot * S::stats_bytes);
#pragma unroll 1
    for (int i = 0; i < kGradBlock && keys.count > 0; i += 32) {
      const uint32_t row = ring + at + Tile<D>::bytes(i);
      const QueryBlock b{row, row + S::block_bytes, lse_log2 + i, lse_log2 + kGradBlock + i};
      const BlockMask of_block{mask, first, j * kGradBlock + i, p.z.t};
      if (Masked && mask.key_limit(of_block.query + 31) <= first) continue;
      add_queries<T, m, 4, D, Masked>(dk, dv, ds, keys, b, p.z.scale_log2, lane, &of_block);
    }
  }
  wait_copies<0>();
  write_scaled<T, m, D>(rows_of<T>(p.z, p.dk_lies, p.dk, head, p.z.s), first, dk, p.z.scale, lane);
  write_scaled<T, m, D>(rows_of<T>(p.z, p.dv_lies, p.dv, head, p.z.s), first, dv, 1.f, lane);
}

// The rows of a warp of queries: in registers, or addresses in shared memory.
template <int M, int D, bool InRegisters>
struct WarpQueries {
  RowsA<M, D> q, dout;
};
template <int M, int D>
struct WarpQueries<M, D, false> {
  uint32_t q, dout;
};

// dq += ds k for `count` keys at most 64, in shared memory at `k` and `v`.
template <class T, int D, bool Masked, class S = GradRingShape<D>>
__device__ __forceinline__ void add_keys(float (&dq)[S::query_m][D / 8][4],
                                         const WarpQueries<S::query_m, D, S::in_registers>& w,
                                         const WarpKeys& keys,
                                         const float (&lse_log2)[S::query_m][2],
                                         const float (&delta)[S::query_m][2], float scale,
                                         const BlockMask& mask) {
  constexpr int m = S::query_m;
  const int lane = threadIdx.x % 32;
#pragma unroll 1
  for (int j = 0; j < kGradBlock && j < keys.count; j += 32) {
    const uint32_t k = keys.k + Tile<D>::bytes(j), v = keys.v + Tile<D>::bytes(j);
    float s[m][4][4], ds[m][4][4];
    if constexpr (Masked)
      init_scores<T>(s, mask.head, mask.queries, mask.query, mask.key + j, lane);
    else
      clear(s);
    if constexpr (S::in_registers) {
      add_gemm_rows<T>(s, w.q, k, lane);
      gemm_rows<T>(ds, w.dout, v, lane);
    } else {
      add_gemm_tiles<T, m, 4, D>(s, w.q, k, lane);
      gemm_tiles<T, m, 4, D>(ds, w.dout, v, lane);
    }
    if (Masked && mask.key + j + 32 > mask.head.key_limit(mask.query))
      mask_keys(s, mask.head, mask.query, mask.key + j, lane);
#pragma unroll
    for (int x = 0; x < m; ++x)
#pragma unroll
      for (int n = 0; n < 4; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float weight = fast_exp2(fmaf(s[x][n][i], scale, -lse_log2[x][i / 2]));
          ds[x][n][i] = weight * (ds[x][n][i] - delta[x][i / 2]);
        }
    if (!Masked && j + 32 > keys.count)
#pragma unroll
      for (int n = 0; n < 4; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (j + 8 * n + lane % 4 * 2 + i % 2 >= keys.count)
#pragma unroll
            for (int x = 0; x < m; ++x) ds[x][n][i] = 0;
    add_weighted_rows<T, m, 4, D>(dq, ds, k, lane);
  }
}

// lse_log2 and delta of a warp's queries, from `first` on.
template <int M>
__device__ __forceinline__ void read_stats(float (&lse_log2)[M][2], float (&delta)[M][2],
                                           const GradParams& p, int head, int first) {
#pragma unroll
  for (int x = 0; x < M; ++x)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = first + 16 * x + 8 * h + threadIdx.x % 32 / 4;
      lse_log2[x][h] = row < p.z.t ? p.lse_log2[int64_t{head} * p.pitch + row] : INFINITY;
      delta[x][h] = row < p.z.t ? p.delta[int64_t{head} * p.pitch + row] : 0.f;
    }
}

// dq of `query_rows` queries, for thread block `index`; summed in the order of the keys.
template <class T, int D, bool Masked>
__device__ __forceinline__ void differentiate_queries(const GradParams& p, int index) {
  using S = GradRingShape<D>;
  constexpr int m = S::query_m;
  extern __shared__ __align__(1024) unsigned char memory[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int head = index / p.query_tiles;
  const int tile = index % p.query_tiles * S::query_rows, first = tile + warp * 16 * m;
  const HeadMask mask(p.z, p.mask, head);
  const int key_limit = Masked ? mask.key_limit(::min(tile + S::query_rows, p.z.t) - 1) : p.z.s;
  const int blocks = (::max(key_limit, 0) + kGradBlock - 1) / kGradBlock;
  const uint32_t q_at = shared_address(memory), dout_at = q_at + Tile<D>::bytes(S::query_rows);
  const uint32_t ring = dout_at + Tile<D>::bytes(S::query_rows);
  const auto k = rows_of<T>(p.z, p.z.k, p.k, head, p.z.s),
             v = rows_of<T>(p.z, p.z.v, p.v, head, p.z.s);
  const auto fetch = [&](int j) {
    if (j < blocks) {
      const uint32_t at = ring + j % kGradStages * 2 * S::block_bytes;
      copy_rows<D, kGradBlock, kGradThreads>(at, k, j * kGradBlock, threadIdx.x);
      copy_rows<D, kGradBlock, kGradThreads>(at + S::block_bytes, v, j * kGradBlock, threadIdx.x);
    }
    commit_copies();
  };
  copy_rows<D, S::query_rows, kGradThreads>(q_at, rows_of<T>(p.z, p.z.q, p.q, head, p.z.t), tile,
                                            threadIdx.x);
  copy_rows<D, S::query_rows, kGradThreads>(dout_at, dout_rows_of<T>(p, head), tile, threadIdx.x);
  fetch(0);
  float dq[m][D / 8][4], lse_log2[m][2], delta[m][2];
  clear(dq);
  read_stats(lse_log2, delta, p, head, first);
  WarpQueries<m, D, S::in_registers> w;
  const int own = Tile<D>::bytes(warp * 16 * m);
#pragma unroll 1
  for (int j = 0; j < blocks; ++j) {
    wait_copies<0>();
    __syncthreads();  // block j is complete, block j - 1 no longer read
    fetch(j + 1);
    if constexpr (S::in_registers) {
      if (j == 0) load_a(w.q, q_at + own, lane), load_a(w.dout, dout_at + own, lane);
    } else {
      w = {q_at + own, dout_at + own};
    }
    const uint32_t at = ring + j % kGradStages * 2 * S::block_bytes;
    const int own = Masked ? mask.key_limit(first + 16 * m - 1) : p.z.s;
    add_keys<T, D, Masked>(dq, w, {at, at + S::block_bytes, own - j * kGradBlock}, lse_log2, delta,
                           p.z.scale_log2, {mask, j * kGradBlock, first, p.z.t});
  }
  wait_copies<0>();
  write_scaled<T, m, D>(rows_of<T>(p.z, p.dq_lies, p.dq, head, p.z.t), first, dq, p.z.scale, lane);
}

// dq, dk and dv in one launch: few heads fill the device only with both kinds of thread blocks.
// `Masked`: with the mask p.mask; fully masked blocks are skipped. grid: for each head p.key_tiles
// thread blocks of GradRingShape<D>::key_rows keys, then for each head p.query_tiles of query_rows
// queries.  sums: f32, in the order of the queries or keys. deterministic: yes.
template <class T, int D, bool Masked>
__global__ __launch_bounds__(kGradThreads,
                             2) void attention_grad_ring(const __grid_constant__ GradParams p) {
  begin();
  const int of_keys = static_cast<int>(p.z.heads) * p.key_tiles, index = blockIdx.x;
  if (index < of_keys)
    differentiate_keys<T, D, Masked>(p, index);
  else
    differentiate_queries<T, D, Masked>(p, index - of_keys);
}

}  // namespace ebb::ops::cuda
