// attention of short sequences on wgmma (sm_90a): a warpgroup owns 64 queries, and all keys and
// values of its head fit into shared memory. There is no pipeline inside of a thread block: several
// thread blocks per SM overlap loads, stores and computation.
#pragma once

#include "backend/cuda/kit/mbarrier.cuh"
#include "ops/prim/attention/cuda/sm90/softmax.cuh"

namespace ebb::ops::cuda {

struct ShortParams {
  CUtensorMap q, k, v, o;  // of rank 4: columns, rows, heads, samples; boxes of 64 columns
  ForwardParams f;         // query_blocks: thread blocks per head
};

constexpr int kShortThreads = 128, kShortRows = 64;  // threads and queries per thread block

// Heads up to D <= 64 wide with at most `Blocks` times `Keys` keys.
template <int D, int Keys, int Blocks>
struct ShortShape {
  static constexpr int width = D, keys = Keys, blocks = Blocks;
  static constexpr int resident = 4;  // thread blocks per SM, limited by registers
  static constexpr int query_bytes = kShortRows * 128, block_bytes = keys * 128;
  // Shared memory: queries (later o), then keys and values of each block; an mbarrier for the keys
  // (the first one for the queries too) and one for the values of each block.
  static constexpr int barriers = query_bytes + 2 * blocks * block_bytes;
  static constexpr int bytes = 1024 + barriers + 2 * blocks * 8;
  static_assert(D <= 64 && Keys % 16 == 0 && bytes <= 227 * 1024);
};

// Updates row_max for another block of scores, and rescales row_sum and o.
template <int Keys, int N>
__device__ __forceinline__ void rescale_rows(OnlineSoftmax& r, float (&o)[N][4],
                                             const float (&s)[Keys / 8][4], float scale) {
  OnlineSoftmax block;
  init_row_max<Keys>(block, s, scale);
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float row_max = fmaxf(r.row_max[h], block.row_max[h]);
    const float factor = fast_exp2(r.row_max[h] - row_max);
    r.row_max[h] = row_max;
    r.row_sum[h] *= factor;
#pragma unroll
    for (int n = 0; n < N; ++n) o[n][2 * h] *= factor, o[n][2 * h + 1] *= factor;
  }
}

// One thread loads everything: `keys` keys and the queries.
template <class S>
__device__ __forceinline__ void load_head(const ShortParams& p, uint32_t at, const BoxAt& queries,
                                          int keys) {
  const int blocks = (keys + S::keys - 1) / S::keys;
  uint32_t to = at + S::query_bytes, barrier = at + S::barriers;
  barrier_expect(barrier, S::query_bytes + S::block_bytes);
  load_box4(at, barrier, p.q, queries);
#pragma unroll 1
  for (int j = 0; j < blocks; ++j) {
    const BoxAt box{0, j * S::keys, queries.z / p.f.z.group, queries.w};
    if (j > 0) barrier_expect(barrier, S::block_bytes);
    load_box4(to, barrier, p.k, box);
    barrier_expect(barrier + 8, S::block_bytes);
    load_box4(to + S::block_bytes, barrier + 8, p.v, box);
    to += 2 * S::block_bytes, barrier += 16;
  }
}

// Normalises a warp's rows and writes o and lse.
template <class T, class S, bool Masked>
__device__ __forceinline__ void store_head(const ShortParams& p, uint32_t at, const BoxAt& to,
                                           const float (&o)[S::width / 8][4],
                                           const OnlineSoftmax& r) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t rows = int64_t{blockIdx.x / p.f.query_blocks} * p.f.z.t;
  float factor[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float sum = quad_sum(r.row_sum[h]);
    const bool masked_row = Masked && sum == 0;  // fully masked
    factor[h] = masked_row ? 0 : __fdividef(1, sum);
    const int row = to.y + warp * 16 + 8 * h + lane / 4;
    if (lane % 4 == 0 && row < p.f.z.t)
      p.f.lse[rows + row] = masked_row ? 0 : (r.row_max[h] + __log2f(sum)) * kLn2;
  }
#pragma unroll
  for (int n = 0; n < S::width / 8; n += 2) {
    uint32_t x[4];
    pack_columns<T>(x, o, n, factor);
    store_columns(at, 8 * n, x);
  }
  fence_async();
  __syncthreads();  // o has replaced the queries
  if (threadIdx.x != 0) return;
  store_box(p.o, at, to);
  store_wait_read<0>();
}

// o and lse. `Masked`: with the mask p.f.mask, which has no bias; key blocks that no query attends
// to are not loaded, except for the first. grid: one thread block per 64 queries of a head.  sums:
// f32.  deterministic: yes.
template <class T, class S, bool Masked>
__global__ __launch_bounds__(kShortThreads, S::resident) void attention_sm90_short(
    const __grid_constant__ ShortParams p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const uint32_t at = (shared_address(memory) + 1023) / 1024 * 1024;
  const int head = blockIdx.x / p.f.query_blocks;
  const BoxAt queries{0, static_cast<int>(blockIdx.x % p.f.query_blocks) * kShortRows,
                      head % p.f.z.a, head / p.f.z.a};
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2 * S::blocks; ++i) barrier_init(at + S::barriers + 8 * i, 1);
    barrier_init_done();
  }
  __syncthreads();  // barriers are initialised
  begin();
  const HeadMask mask(p.f.z, p.f.mask, head);
  const int all =
      Masked ? ::max(mask.key_limit(::min(queries.y + kShortRows, p.f.z.t) - 1), 1) : p.f.z.s;
  if (threadIdx.x == 0) load_head<S>(p, at, queries, all);
  uint32_t keys = at + S::query_bytes, barrier = at + S::barriers;
  OnlineSoftmax r;
  float o[S::width / 8][4];
#pragma unroll 1
  for (int left = all; left > 0; left -= S::keys) {
    const bool begun = left < all;
    float s[S::keys / 8][4];
    uint32_t w[S::keys / 16][4];
    barrier_wait(barrier, 0);
    wgmma_fence();
    start_scores<T, S::width, S::keys>(s, at, keys);
    wgmma_commit();
    wgmma_wait<0>();
    fence_accumulators(s);
    if constexpr (Masked) {
      const int row = queries.y + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
      const int key_limit[2] = {mask.key_limit(row) - (all - left),
                                mask.key_limit(row + 8) - (all - left)};
      mask_scores_beyond(s, key_limit, threadIdx.x % 32);
    } else if (left < S::keys) {
      mask_columns(s, left, threadIdx.x % 32);
    }
    if (begun)
      rescale_rows<S::keys>(r, o, s, p.f.z.scale_log2);
    else
      init_row_max<S::keys>(r, s, p.f.z.scale_log2);
    if constexpr (Masked) bound_row_max(r);
    exp_scores_packed<T>(w, s, p.f.z.scale_log2, r);
    fence_accumulators(w);
    barrier_wait(barrier + 8, 0);
    wgmma_fence();
    start_values<T, S::width, S::keys>(o, w, keys + S::block_bytes, !begun);
    wgmma_commit();
    wgmma_wait<0>();
    fence_accumulators(o);
    keys += 2 * S::block_bytes, barrier += 16;
  }
  let_next_start();
  __syncthreads();  // queries are no longer read
  store_head<T, S, Masked>(p, at, queries, o, r);
}

}  // namespace ebb::ops::cuda
