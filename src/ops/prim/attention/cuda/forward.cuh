// attention on mma.sync: a warp owns 16 M queries and iterates over key blocks with an online
// softmax (Dao 2023, FlashAttention-2). Scores are in units of log 2.
#pragma once

#include "ops/prim/attention/cuda/mask.cuh"

namespace ebb::ops::cuda {

using namespace ebb::cuda;

struct ForwardParams {
  HeadSizes z;
  const void *q, *k, *v;
  void* o;
  float* lse;
  int query_blocks, tiles_per_block;  // query blocks (thread blocks) per head; query tiles in
                                      // each// thread blocks a head; tiles of queries in each
  MaskParams mask;                    // of kernels that are Masked
};

// A block of keys and values in shared memory, of which `count` exist.
struct KvBlock {
  uint32_t k, v;
  int count;
};

constexpr int kForwardWarps = 4;
constexpr int kForwardThreads = 32 * kForwardWarps;
constexpr int kResidentBlocks = 4;  // key blocks, 64 keys each

// Tile sizes by width: m x 16 queries per warp, 8 n keys per iteration, keys per shared memory
// stage, stages, thread blocks per SM.
template <int D>
struct ForwardShape {
  static constexpr bool query_in_registers = D <= 80;
  static constexpr int m = D <= 128 ? 2 : 1;
  static constexpr int n = D == 160 ? 8 : 4;
  static constexpr int keys = D == 256 ? 32 : 64;
  static constexpr int stages = D <= 80 ? 3 : 2;
  static constexpr int rows = 16 * m * kForwardWarps;
  static constexpr int blocks = D <= 40 ? 4 : D <= 72 ? 3 : 2;
  static constexpr int block_bytes = Tile<D>::bytes(keys);
  static constexpr int query_bytes = query_in_registers ? 0 : Tile<D>::bytes(rows);
  static constexpr int ring_bytes = query_bytes + 2 * stages * block_bytes;
};

// Online softmax state and unnormalised o of a warp's rows; h: upper or lower 8 of 16 rows.
template <int M, int D>
struct RowState {
  float row_max[M][2], row_sum[M][2];  // reduced over the row's lanes; this lane's columns only
  float o[M][D / 8][4];
};

template <int M, int D>
__device__ __forceinline__ void reset(RowState<M, D>& r) {
#pragma unroll
  for (int m = 0; m < M; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) r.row_max[m][h] = -INFINITY, r.row_sum[m][h] = 0;
#pragma unroll
    for (int d = 0; d < D / 8; ++d)
#pragma unroll
      for (int i = 0; i < 4; ++i) r.o[m][d][i] = 0;
  }
}

// Raises row_max to the largest score, and rescales row_sum and o.
template <int M, int D>
__device__ __forceinline__ void rescale(RowState<M, D>& r, float (&top)[M][2]) {
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float v = fmaxf(quad_max(top[m][h]), r.row_max[m][h]);
      const float f = v == r.row_max[m][h] ? 1.f : fast_exp2(r.row_max[m][h] - v);
      r.row_max[m][h] = v;
      r.row_sum[m][h] *= f;
#pragma unroll
      for (int d = 0; d < D / 8; ++d) r.o[m][d][2 * h] *= f, r.o[m][d][2 * h + 1] *= f;
    }
}

// Scores become weights 2^(scale s - row_max). row_max is only updated where scores exceed it by
// more than 2^8 (lazy rescaling): weights stay in range, and o is rarely rescaled. If `Masked`,
// rows may have no finite score (yet): their weights are 0.
template <int M, int N, int D, bool Masked = false>
__device__ __forceinline__ void online_softmax(float (&s)[M][N][4], RowState<M, D>& r,
                                               float scale) {
  constexpr float kSlack = 8;
  float top[M][2];
  bool grown = false;
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float v = fmaxf(s[m][0][2 * h], s[m][0][2 * h + 1]);
#pragma unroll
      for (int n = 1; n < N; ++n) v = fmaxf(v, fmaxf(s[m][n][2 * h], s[m][n][2 * h + 1]));
      top[m][h] = v * scale;
      grown |= top[m][h] > r.row_max[m][h] + kSlack;
    }
  if (__any_sync(~0u, grown)) rescale(r, top);
  const auto shift = [&](int m, int h) {
    const float row_max = r.row_max[m][h];
    return Masked && row_max == -INFINITY ? 0.f : row_max;
  };
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        s[m][n][i] = fast_exp2(fmaf(s[m][n][i], scale, -shift(m, i / 2)));
        r.row_sum[m][i / 2] += s[m][n][i];
      }
}

// Sets scores of keys from `count` (of these 8 N) on to -infinity.
template <int M, int N>
__device__ __forceinline__ void mask_columns(float (&s)[M][N][4], int count, int lane) {
  count -= lane % 4 * 2;
#pragma unroll
  for (int n = 0; n < N; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (8 * n + i % 2 >= count)
#pragma unroll
        for (int m = 0; m < M; ++m) s[m][n][i] = -INFINITY;
}

template <int N>
__device__ __forceinline__ void mask_columns(float (&s)[N][4], int count, int lane) {
  mask_columns(reinterpret_cast<float(&)[1][N][4]>(s), count, lane);
}

// The queries of a warp: in registers, or an address in shared memory.
template <int M, int D, bool InRegisters>
struct Queries {
  RowsA<M, D> a;
};
template <int M, int D>
struct Queries<M, D, false> {
  uint32_t at;
};

// Processes a key block of at most S::keys in shared memory. `Masked`: `mask` has the block's first
// key and the warp's first query.
template <class T, int D, bool Masked = false, class S = ForwardShape<D>>
__device__ __forceinline__ void add_keys(RowState<S::m, D>& r,
                                         const Queries<S::m, D, S::query_in_registers>& q,
                                         const KvBlock& b, float scale, int lane,
                                         const BlockMask* mask = nullptr) {
#pragma unroll 1
  for (int j = 0; j < b.count && j < S::keys; j += 8 * S::n) {
    float s[S::m][S::n][4];
    if constexpr (Masked)
      init_scores<T>(s, mask->head, mask->queries, mask->query, mask->key + j, lane);
    else
      clear(s);
    if constexpr (S::query_in_registers)
      add_gemm_rows<T>(s, q.a, b.k + Tile<D>::bytes(j), lane);
    else
      add_gemm_tiles<T, S::m, S::n, D>(s, q.at, b.k + Tile<D>::bytes(j), lane);
    if constexpr (Masked) {
      if (mask->key + j + 8 * S::n > mask->head.key_limit(mask->query))
        mask_keys(s, mask->head, mask->query, mask->key + j, lane);
    } else if (j + 8 * S::n > b.count) {
      mask_columns(s, b.count - j, lane);
    }
    online_softmax<S::m, S::n, D, Masked>(s, r, scale);
    add_weighted_rows<T, S::m, S::n, D>(r.o, s, b.v + Tile<D>::bytes(j), lane);
  }
}

template <class T, int M, int D>
__device__ __forceinline__ void finish(const ForwardParams& p, RowState<M, D>& r, int64_t head,
                                       int begin, int lane) {
  float factor[M][2];
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float sum = quad_sum(r.row_sum[m][h]);
      const bool masked_row = sum == 0;  // fully masked
      factor[m][h] = masked_row ? 0 : 1 / sum;
      const int row = begin + 16 * m + 8 * h + lane / 4;
      if (lane % 4 == 0 && row < p.z.t)
        p.lse[int64_t{head} * p.z.t + row] = masked_row ? 0 : (r.row_max[m][h] + log2f(sum)) * kLn2;
    }
  write_rows<T, M, D>(rows_of<T>(p.z, p.z.o, p.o, head, p.z.t), begin, r.o, factor, lane);
}

// o and lse of at most 256 keys, which stay in shared memory.
// grid: p.query_blocks thread blocks per head, p.tiles_per_block query tiles each.  sums: f32.
// deterministic: yes.
template <class T, int D>
__global__ __launch_bounds__(kForwardThreads, ForwardShape<D>::blocks) void attention_resident(
    const __grid_constant__ ForwardParams p) {
  begin();
  using S = ForwardShape<D>;
  extern __shared__ __align__(1024) unsigned char memory[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int head = blockIdx.x / p.query_blocks;
  const int query_block = blockIdx.x % p.query_blocks;
  const int blocks = (p.z.s + S::keys - 1) / S::keys;
  const uint32_t k_at = shared_address(memory), v_at = k_at + blocks * S::block_bytes;
  const auto k = key_rows_of<T>(p.z, p.z.k, p.k, head), v = key_rows_of<T>(p.z, p.z.v, p.v, head);
#pragma unroll 1
  for (int j = 0; j < kResidentBlocks; ++j) {
    if (j < blocks) {
      const int at = j * S::block_bytes;
      copy_rows<D, S::keys, kForwardThreads>(k_at + at, k, j * S::keys, threadIdx.x);
      copy_rows<D, S::keys, kForwardThreads>(v_at + at, v, j * S::keys, threadIdx.x);
    }
    commit_copies();
  }
  Queries<S::m, D, true> q;
  RowState<S::m, D> r;
#pragma unroll 1
  for (int i = 0; i < p.tiles_per_block; ++i) {
    const int first = ((query_block * p.tiles_per_block + i) * kForwardWarps + warp) * 16 * S::m;
    read_a(q.a, rows_of<T>(p.z, p.z.q, p.q, head, p.z.t), first, lane);
    reset(r);
#pragma unroll 1
    for (int j = 0; j < blocks; ++j) {
      if (i == 0) {
        if (j == 0) wait_copies<kResidentBlocks - 1>();
        if (j == 1) wait_copies<kResidentBlocks - 2>();
        if (j == 2) wait_copies<kResidentBlocks - 3>();
        if (j == 3) wait_copies<0>();
        __syncthreads();  // block j is complete
      }
      const int at = j * S::block_bytes;
      add_keys<T, D>(r, q, {k_at + at, v_at + at, p.z.s - j * S::keys}, p.z.scale_log2, lane);
    }
    finish<T>(p, r, head, first, lane);
  }
}

// o and lse of any number of keys, through a circular buffer of key blocks in shared memory.
// `Masked`: with the mask p.mask; blocks that no query of the tile attends to are skipped.
// grid: p.query_blocks thread blocks per head.  sums: f32.  deterministic: yes.
template <class T, int D, bool Masked>
__global__ __launch_bounds__(kForwardThreads, ForwardShape<D>::blocks) void attention_ring(
    const __grid_constant__ ForwardParams p) {
  begin();
  using S = ForwardShape<D>;
  extern __shared__ __align__(1024) unsigned char memory[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int head = blockIdx.x / p.query_blocks;
  const int tile = blockIdx.x % p.query_blocks * S::rows;
  const int first = tile + warp * 16 * S::m;
  const HeadMask mask(p.z, p.mask, head);
  const int key_limit = Masked ? mask.key_limit(::min(tile + S::rows, p.z.t) - 1) : p.z.s;
  const int blocks = (::max(key_limit, 0) + S::keys - 1) / S::keys;
  const uint32_t q_at = shared_address(memory), ring = q_at + S::query_bytes;
  const auto rows = rows_of<T>(p.z, p.z.q, p.q, head, p.z.t);
  const auto k = key_rows_of<T>(p.z, p.z.k, p.k, head), v = key_rows_of<T>(p.z, p.z.v, p.v, head);
  const auto fetch = [&](int j) {
    if (j < blocks) {
      const uint32_t at = ring + j % S::stages * 2 * S::block_bytes;
      copy_rows<D, S::keys, kForwardThreads>(at, k, j * S::keys, threadIdx.x);
      copy_rows<D, S::keys, kForwardThreads>(at + S::block_bytes, v, j * S::keys, threadIdx.x);
    }
    commit_copies();
  };
  Queries<S::m, D, S::query_in_registers> q;
  if constexpr (S::query_in_registers) {
    read_a(q.a, rows, first, lane);
  } else {
    copy_rows<D, S::rows, kForwardThreads>(q_at, rows, tile, threadIdx.x);
    q.at = q_at + Tile<D>::bytes(warp * 16 * S::m);
  }
#pragma unroll
  for (int j = 0; j < S::stages - 1; ++j) fetch(j);
  RowState<S::m, D> r;
  reset(r);
#pragma unroll 1
  for (int j = 0; j < blocks; ++j) {
    wait_copies<S::stages - 2>();
    __syncthreads();  // block j is complete, block j - 1 no longer read
    fetch(j + S::stages - 1);
    const uint32_t at = ring + j % S::stages * 2 * S::block_bytes;
    const int own = Masked ? mask.key_limit(first + 16 * S::m - 1) : p.z.s;
    const BlockMask of_block{mask, j * S::keys, first, p.z.t};
    add_keys<T, D, Masked>(r, q, {at, at + S::block_bytes, own - j * S::keys}, p.z.scale_log2, lane,
                           &of_block);
  }
  wait_copies<0>();
  finish<T>(p, r, head, first, lane);
}

}  // namespace ebb::ops::cuda
