// attention on tensor cores: a warp owns 16 M queries and walks over the keys with a running
// softmax (Dao 2023, FlashAttention-2). Scores are in units of log 2.
#pragma once

#include "ops/prim/attention/cuda_mask.cuh"

namespace ebb::ops::cuda {

using namespace ebb::cuda;

struct ForwardParams {
  HeadSizes z;
  const void *q, *k, *v;
  void* o;
  float* lse;
  int parts, tiles;  // thread blocks a head; tiles of queries in each
  MaskParams mask;   // of kernels that are Masked
};

// A block of keys and values in shared memory, `count` of them not beyond the end.
struct BlockOfKeys {
  uint32_t k, v;
  int count;
};

constexpr int kForwardWarps = 4;
constexpr int kForwardThreads = 32 * kForwardWarps;
constexpr int kResidentBlocks = 4;  // of keys, 64 each

// Choices by width: M groups of 16 queries a warp, 8 N keys a step, keys of a block in shared
// memory, blocks in flight, thread blocks a SM.
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

// The running softmax of a warp's rows; h: upper or lower 8 of 16 rows.
template <int M, int D>
struct Running {
  float highest[M][2], sum[M][2];  // in every lane of a row; of this lane's columns
  float o[M][D / 8][4];
};

template <int M, int D>
__device__ __forceinline__ void reset(Running<M, D>& r) {
#pragma unroll
  for (int m = 0; m < M; ++m) {
#pragma unroll
    for (int h = 0; h < 2; ++h) r.highest[m][h] = -INFINITY, r.sum[m][h] = 0;
#pragma unroll
    for (int d = 0; d < D / 8; ++d)
#pragma unroll
      for (int i = 0; i < 4; ++i) r.o[m][d][i] = 0;
  }
}

// Takes `highest` up to the largest score, and what was summed down with it.
template <int M, int D>
__device__ __forceinline__ void raise(Running<M, D>& r, float (&top)[M][2]) {
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float v = fmaxf(row_highest(top[m][h]), r.highest[m][h]);
      const float f = v == r.highest[m][h] ? 1.f : fast_exp2(r.highest[m][h] - v);
      r.highest[m][h] = v;
      r.sum[m][h] *= f;
#pragma unroll
      for (int d = 0; d < D / 8; ++d) r.o[m][d][2 * h] *= f, r.o[m][d][2 * h + 1] *= f;
    }
}

// Scores become weights 2^(scale s - highest). `highest` follows the largest score only when it is
// left behind by more than 2^8: the weights stay in range, and the sums are rarely touched. If
// `Masked`, rows may have no finite score (yet): their weights are 0.
template <int M, int N, int D, bool Masked = false>
__device__ __forceinline__ void weigh(float (&s)[M][N][4], Running<M, D>& r, float scale) {
  constexpr float kSlack = 8;
  float top[M][2];
  bool higher = false;
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float v = fmaxf(s[m][0][2 * h], s[m][0][2 * h + 1]);
#pragma unroll
      for (int n = 1; n < N; ++n) v = fmaxf(v, fmaxf(s[m][n][2 * h], s[m][n][2 * h + 1]));
      top[m][h] = v * scale;
      higher |= top[m][h] > r.highest[m][h] + kSlack;
    }
  if (__any_sync(~0u, higher)) raise(r, top);
  const auto shift = [&](int m, int h) {
    const float highest = r.highest[m][h];
    return Masked && highest == -INFINITY ? 0.f : highest;
  };
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        s[m][n][i] = fast_exp2(fmaf(s[m][n][i], scale, -shift(m, i / 2)));
        r.sum[m][i / 2] += s[m][n][i];
      }
}

// Scores of keys from `count` (of these 8 N) on become minus infinity.
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

// The queries of a warp: in registers, or an address in shared memory.
template <int M, int D, bool InRegisters>
struct Queries {
  RowsA<M, D> a;
};
template <int M, int D>
struct Queries<M, D, false> {
  uint32_t at;
};

// Adds `count` keys, a block of at most S::keys in shared memory. `Masked`: `mask` has the block's
// first key and the warp's first query.
template <class T, int D, bool Masked = false, class S = ForwardShape<D>>
__device__ __forceinline__ void add_keys(Running<S::m, D>& r,
                                         const Queries<S::m, D, S::query_in_registers>& q,
                                         const BlockOfKeys& b, float scale, int lane,
                                         const BlockMask* mask = nullptr) {
#pragma unroll 1
  for (int j = 0; j < b.count && j < S::keys; j += 8 * S::n) {
    float s[S::m][S::n][4];
    if constexpr (Masked)
      begin_scores<T>(s, mask->head, mask->queries, mask->query, mask->key + j, lane);
    else
      clear(s);
    if constexpr (S::query_in_registers)
      add_gemm_rows<T>(s, q.a, b.k + Tile<D>::bytes(j), lane);
    else
      add_gemm_tiles<T, S::m, S::n, D>(s, q.at, b.k + Tile<D>::bytes(j), lane);
    if constexpr (Masked) {
      if (mask->key + j + 8 * S::n > mask->head.seen(mask->query))
        hide_keys(s, mask->head, mask->query, mask->key + j, lane);
    } else if (j + 8 * S::n > b.count) {
      mask_columns(s, b.count - j, lane);
    }
    weigh<S::m, S::n, D, Masked>(s, r, scale);
    add_weighted_rows<T, S::m, S::n, D>(r.o, s, b.v + Tile<D>::bytes(j), lane);
  }
}

template <class T, int M, int D>
__device__ __forceinline__ void finish(const ForwardParams& p, Running<M, D>& r, int64_t head,
                                       int begin, int lane) {
  float factor[M][2];
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float sum = row_sum(r.sum[m][h]);
      const bool blind = sum == 0;  // it sees no key
      factor[m][h] = blind ? 0 : 1 / sum;
      const int row = begin + 16 * m + 8 * h + lane / 4;
      if (lane % 4 == 0 && row < p.z.t)
        p.lse[int64_t{head} * p.z.t + row] = blind ? 0 : (r.highest[m][h] + log2f(sum)) * kLn2;
    }
  write_rows<T, M, D>(out_rows_of<T>(p.z, p.o, head), begin, r.o, factor, lane);
}

// o and lse; at most 256 keys, which stay in shared memory.
// grid: p.parts blocks a sample and head, p.tiles tiles of queries each.  sums: f32.
// deterministic: yes.
template <class T, int D>
__global__ __launch_bounds__(kForwardThreads, ForwardShape<D>::blocks) void attention_resident(
    const __grid_constant__ ForwardParams p) {
  begin();
  using S = ForwardShape<D>;
  extern __shared__ __align__(1024) unsigned char memory[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int head = blockIdx.x / p.parts;
  const int part = blockIdx.x % p.parts;
  const int blocks = (p.z.s + S::keys - 1) / S::keys;
  const uint32_t k_at = shared_address(memory), v_at = k_at + blocks * S::block_bytes;
  const auto k = rows_of<T>(p.z, p.k, head, p.z.s), v = rows_of<T>(p.z, p.v, head, p.z.s);
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
  Running<S::m, D> r;
#pragma unroll 1
  for (int i = 0; i < p.tiles; ++i) {
    const int first = ((part * p.tiles + i) * kForwardWarps + warp) * 16 * S::m;
    read_a(q.a, rows_of<T>(p.z, p.q, head, p.z.t), first, lane);
    reset(r);
#pragma unroll 1
    for (int j = 0; j < blocks; ++j) {
      if (i == 0) {
        if (j == 0) wait_copies<kResidentBlocks - 1>();
        if (j == 1) wait_copies<kResidentBlocks - 2>();
        if (j == 2) wait_copies<kResidentBlocks - 3>();
        if (j == 3) wait_copies<0>();
        __syncthreads();  // block j is there for all
      }
      const int at = j * S::block_bytes;
      add_keys<T, D>(r, q, {k_at + at, v_at + at, p.z.s - j * S::keys}, p.z.scale_log2, lane);
    }
    finish<T>(p, r, head, first, lane);
  }
}

// o and lse; any number of keys, whose blocks go through a ring in shared memory. `Masked`: with
// what p.mask says; blocks that no query of the tile sees are not loaded.
// grid: p.parts blocks a sample and head.  sums: f32.  deterministic: yes.
template <class T, int D, bool Masked>
__global__ __launch_bounds__(kForwardThreads, ForwardShape<D>::blocks) void attention_ring(
    const __grid_constant__ ForwardParams p) {
  begin();
  using S = ForwardShape<D>;
  extern __shared__ __align__(1024) unsigned char memory[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int head = blockIdx.x / p.parts;
  const int tile = blockIdx.x % p.parts * S::rows;
  const int first = tile + warp * 16 * S::m;
  const HeadMask mask(p.z, p.mask, head);
  const int seen = Masked ? mask.seen(::min(tile + S::rows, p.z.t) - 1) : p.z.s;
  const int blocks = (::max(seen, 0) + S::keys - 1) / S::keys;
  const uint32_t q_at = shared_address(memory), ring = q_at + S::query_bytes;
  const auto rows = rows_of<T>(p.z, p.q, head, p.z.t);
  const auto k = rows_of<T>(p.z, p.k, head, p.z.s), v = rows_of<T>(p.z, p.v, head, p.z.s);
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
  Running<S::m, D> r;
  reset(r);
#pragma unroll 1
  for (int j = 0; j < blocks; ++j) {
    wait_copies<S::stages - 2>();
    __syncthreads();  // block j is there for all, and all are done with block j - 1
    fetch(j + S::stages - 1);
    const uint32_t at = ring + j % S::stages * 2 * S::block_bytes;
    const int own = Masked ? mask.seen(first + 16 * S::m - 1) : p.z.s;
    const BlockMask of_block{mask, j * S::keys, first, p.z.t};
    add_keys<T, D, Masked>(r, q, {at, at + S::block_bytes, own - j * S::keys}, p.z.scale_log2, lane,
                           &of_block);
  }
  wait_copies<0>();
  finish<T>(p, r, head, first, lane);
}

}  // namespace ebb::ops::cuda
