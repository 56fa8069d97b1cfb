// attention_grad of long sequences with wgmma and TMA (sm_90a), in one pass over pairs of a key
// block and a query block: dk and dv of a key block stay in registers, dq is accumulated over the
// key blocks in device memory, in a fixed order. The five GEMMs of a pair: s = k q^T, dp = v do^T,
// dv += p do, dk += ds q, dq += ds^T k (s, p, dp and ds: keys by queries).
#pragma once

#include "ops/prim/attention/cuda/widths.h"
#include "ops/prim/attention_grad/cuda/sm90/table.cuh"

namespace ebb::ops::cuda {

// Byte offset of the columns [16 k, 16 k + 16) in TMA boxes of `rows` rows.
template <int D>
__device__ __forceinline__ constexpr uint32_t columns_at(int k, int rows) {
  constexpr int first = D == 80 ? 3 : 4;  // in the first box
  if (k < first) return k * 32;
  return rows * 128 + (D == 80 ? 16 : 0) + (k - first) * 32;
}

// State of a consumer warpgroup. Its accumulators are 64 keys by columns of dk and dv, and 64
// queries by columns of dq.
template <int D>
struct LongWork {
  const LongParams& p;
  unsigned char* memory;
  uint32_t at;  // address of memory
  int group;    // 0 or 1: which 64 keys
  LongPipelines<D> pipelines{at};
};
// A query block and a tile; `tiles` and `count` number both within this thread block.
struct Iteration {
  int key_block, query;  // the block's first query
  int tiles, count;
  bool last;  // of the tile's blocks
};
template <int D>
using ScoreAccumulators = float[LongShape<D>::queries / 8][4];
template <int D>
using Packed = uint32_t[LongShape<D>::queries / 16][4];
template <int D>
using DkvAccumulators = float[LongShape<D>::column_tiles][LongShape<D>::width / 8][4];
template <int D>
using DqAccumulators = float[LongShape<D>::dq_width / 8][4];
// lse_log2 or delta of a block's queries.
template <int D>
using RowStats = float2[LongShape<D>::queries / 8];

// c = 64 rows of `a` (k or v) times the transpose of the block of q or do at `b`.
template <class T, int D>
__device__ __forceinline__ void start_scores(ScoreAccumulators<D>& c, uint32_t a, uint32_t b) {
  using S = LongShape<D>;
  const uint64_t x = swizzled_operand(a, 0), y = swizzled_operand(b, 0);
  fence_accumulators(c);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < (D + 15) / 16; ++k)
    wgmma<T, 0, 0>(c, x + columns_at<D>(k, S::keys) / 16, y + columns_at<D>(k, S::queries) / 16,
                   k > 0);
  wgmma_commit();
}

// sum += packed weights times the block of q or do at `b`.
template <class T, int D>
__device__ __forceinline__ void start_dkv(DkvAccumulators<D>& sum, const Packed<D>& a, uint32_t b) {
  using S = LongShape<D>;
  constexpr int next = S::queries * 128;
  const uint64_t y = swizzled_operand(b, next);
  fence_accumulators(sum);
  wgmma_fence();
#pragma unroll
  for (int k = 0; k < S::queries / 16; ++k)
#pragma unroll
    for (int tile = 0; tile < S::column_tiles; ++tile)
      wgmma<T, 1>(sum[tile], a[k], y + tile * (next >> 4) + k * wgmma_next_k<1>, 1);
  wgmma_commit();
}

// dq of 64 queries from all keys of a tile, i.e. from both warpgroups' ds.
template <class T, int D>
__device__ __forceinline__ void start_dq(DqAccumulators<D>& dq, const LongWork<D>& w,
                                         const Iteration& o) {
  using S = LongShape<D>;
  const uint32_t ds = w.at + S::ds + (o.count & 1) * S::ds_bytes +
                      (S::queries == 128 ? w.group * S::keys * 128 : 0);
  const uint32_t k =
      w.at + S::k + (o.tiles & 1) * S::key_bytes + (S::boxes == 2 ? w.group * S::keys * 128 : 0);
  const uint64_t x = swizzled_operand(ds, 0), y = swizzled_operand(k, 0);
  fence_accumulators(dq);
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < S::keys / 16; ++i)
    wgmma<T, 1, 1>(dq, x + i * wgmma_next_k<1>, y + i * wgmma_next_k<1>, i > 0);
  wgmma_commit();
}

// Packed p from the scores.
template <class T, int D, bool Causal>
__device__ __forceinline__ void pack_probabilities(Packed<D>& weights, ScoreAccumulators<D>& s,
                                                   const RowStats<D>& lse_log2,
                                                   const LongWork<D>& w, const Iteration& o) {
  using S = LongShape<D>;
  exp_scores_transposed(s, lse_log2, w.p.g.z.scale_log2,
                        w.p.g.z.s - o.key_block * S::keys - w.group * 64);
  if constexpr (Causal)
    mask_later_keys(s, o.key_block * S::keys + w.group * 64, o.query + w.p.sizes.diagonal);
  pack_weights<T, S::queries>(weights, s);
}

// ds into shared memory, for both warpgroups: rows are keys, boxes of 64 queries.
template <int D>
__device__ __forceinline__ void store_ds(const LongWork<D>& w, const Packed<D>& ds, int count) {
  using S = LongShape<D>;
  const int lane = threadIdx.x % 32;
  const int key = 64 * w.group + threadIdx.x % 128 / 32 * 16 + lane % 16;
  // The 16 bytes of queries [0, 8) or [8, 16), swizzled. Those behind them differ in bits 5 and 6
  // only, as rows are aligned to 128 bytes.
  const uint32_t at =
      w.at + S::ds + (count & 1) * S::ds_bytes + key * 128 + (lane / 16 ^ lane % 8) * 16;
#pragma unroll
  for (int k = 0; k < S::queries / 16; ++k)
    store_matrices((at ^ k % 4 * 32) + k / 4 * S::keys * 128, ds[k]);
  fence_async();
}

// Writes the final dq of a query block; `accum` has the sum over the earlier tiles.
template <class T, int D>
__device__ __forceinline__ void write_dq(DqAccumulators<D>& dq, const LongWork<D>& w,
                                         const DqTurn& turn, const float4* accum) {
  using S = LongShape<D>;
  constexpr int columns = S::dq_width / 8;
  if (!turn.first) {
    float4 x[columns];
#pragma unroll
    for (int n = 0; n < columns; ++n) x[n] = __ldcg(accum + n * 128);
#pragma unroll
    for (int n = 0; n < columns; ++n)
      dq[n][0] += x[n].x, dq[n][1] += x[n].y, dq[n][2] += x[n].z, dq[n][3] += x[n].w;
  }
  const auto [head, index] = HeadBlock::at(w.p.sizes, turn.block);
  const int query_head = head * w.p.g.z.group + index / w.p.sizes.head_blocks;
  Rows<T> to = rows_of<T>(w.p.g.z, w.p.g.dq_lies, w.p.g.dq, query_head, w.p.g.z.t);
  const int warp = threadIdx.x % 128 / 32, column = S::boxes == 2 ? w.group * S::step : 0;
  const int row =
      index % w.p.sizes.head_blocks * S::queries + (S::boxes == 2 ? 0 : w.group * 64) + warp * 16;
  to.first += column, to.width -= column;
  using One = float(&)[1][columns][4];
  write_scaled<T, 1, S::dq_width>(to, row, reinterpret_cast<One>(dq), w.p.g.z.scale,
                                  threadIdx.x % 32);
}

// *to += v as one vectorised reduction.
__device__ __forceinline__ void add_to(float4* to, const float (&v)[4]) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1,%2,%3,%4};" ::"l"(to), "f"(v[0]),
               "f"(v[1]), "f"(v[2]), "f"(v[3])
               : "memory");
}

// Adds the tile's dq of a query block to dq_accum; the last tile writes the result instead.
template <class T, int D>
__device__ __forceinline__ void add_dq(DqAccumulators<D>& dq, const LongWork<D>& w,
                                       const DqTurn& turn) {
  using S = LongShape<D>;
  const int64_t tile = int64_t{turn.block} * S::groups + w.group;
  auto* const accum =
      reinterpret_cast<float4*>(w.p.dq_accum + tile * S::dq_tile_floats) + threadIdx.x % 128;
  if (turn.last) {
    write_dq<T, D>(dq, w, turn, accum);
  } else if (turn.first) {
#pragma unroll
    for (int n = 0; n < S::dq_width / 8; ++n)
      accum[n * 128] = {dq[n][0], dq[n][1], dq[n][2], dq[n][3]};
  } else {
#pragma unroll
    for (int n = 0; n < S::dq_width / 8; ++n) add_to(accum + n * 128, dq[n]);
  }
}

// After dq of a query block has been computed: releases buffers, and accumulates it.
template <class T, int D>
__device__ __forceinline__ void finish_dq(DqAccumulators<D>& dq, const LongWork<D>& w,
                                          const Iteration& o) {
  fence_accumulators(dq);
  w.pipelines.ds.release(o.count);
  if (o.last) w.pipelines.keys.release(o.tiles);
  w.pipelines.dq.wait(o.count);
  const DqTurn turn = dq_turns<D>(w.memory)[o.count & 1];
  add_dq<T, D>(dq, w, turn);
  w.pipelines.dq.release(o.count);
}

// Accumulates a query block into dk and dv. Software-pipelined: on return the GEMM of dk is still
// in flight, and dq of this block is computed by the next call (`before` is the previous block).
// The first call discards its dq.
template <class T, int D, bool Causal>
__device__ __forceinline__ void process_query_block(const LongWork<D>& w, const Iteration& o,
                                                    const Iteration& before, DkvAccumulators<D>& dk,
                                                    DkvAccumulators<D>& dv) {
  using S = LongShape<D>;
  const int slot = o.count & 1;
  const uint32_t q = w.at + S::q + slot * S::query_bytes;
  const uint32_t dout = w.at + S::dout + slot * S::query_bytes;
  const uint32_t keys = w.at + (o.tiles & 1) * S::key_bytes + w.group * 8192;
  ScoreAccumulators<D> s, dp;
  DqAccumulators<D> dq;
  Packed<D> weights, ds;
  RowStats<D> lse_log2, delta;
  w.pipelines.q.wait(o.count);
  start_scores<T, D>(s, keys + S::k, q);
  const auto stats = [&](int at) {
    return reinterpret_cast<const float*>(w.memory + at + slot * S::stats_bytes);
  };
  if constexpr (S::early_stats) load_row_stats(lse_log2, stats(S::lse_log2));
  wgmma_wait<1>();  // dk of the previous block
  fence_accumulators(dk);
  if (o.count > 0) w.pipelines.q.release(o.count - 1);
  w.pipelines.dout.wait(o.count);
  start_scores<T, D>(dp, keys + S::v, dout);
  wgmma_wait<1>();  // s
  if constexpr (!S::early_stats) load_row_stats(lse_log2, stats(S::lse_log2));
  fence_accumulators(s);
  pack_probabilities<T, D, Causal>(weights, s, lse_log2, w, o);
  start_dkv<T, D>(dv, weights, dout);
  if (o.count > 0) w.pipelines.ds.wait(o.count - 1);
  if constexpr (S::early_stats) load_row_stats(delta, stats(S::delta));
  start_dq<T, D>(dq, w, before);
  wgmma_wait<2>();  // dp
  if constexpr (!S::early_stats) load_row_stats(delta, stats(S::delta));
  fence_accumulators(dp);
  differentiate<T>(ds, weights, dp, delta);
  w.pipelines.ds.acquire(o.count);
  store_ds<D>(w, ds, o.count);
  w.pipelines.ds.commit(o.count);
  start_dkv<T, D>(dk, ds, q);
  wgmma_wait<1>();  // dv, dq
  fence_accumulators(dv);
  w.pipelines.dout.release(o.count);
  if (o.count > 0) finish_dq<T, D>(dq, w, before);
}

// dk or dv of 64 keys: the result, or a partial of a query split.
template <class T, int D, class Tile>
__device__ __forceinline__ void write_dkv(const LongWork<D>& w, DkvAccumulators<D>& sum,
                                          const Tile& t, bool dv) {
  using S = LongShape<D>;
  const int thread = threadIdx.x % 128, first = t.key_block * S::keys + w.group * 64;
  if (w.p.sizes.query_splits > 1) {
    const int64_t head = int64_t{t.query_split} * w.p.sizes.heads + t.head;
    const int64_t tile = (head * w.p.sizes.key_blocks * 2 + first / 64) * 2 + dv;
    auto* const to =
        reinterpret_cast<float4*>(w.p.dkv_partial + tile * S::dkv_tile_floats) + thread;
#pragma unroll
    for (int i = 0; i < D / 8; ++i) {
      const float(&x)[4] = sum[i / (S::width / 8)][i % (S::width / 8)];
      to[i * 128] = {x[0], x[1], x[2], x[3]};
    }
    return;
  }
  const GradParams& g = w.p.g;
  const Rows<T> to =
      key_rows_of<T>(g.z, dv ? g.dv_lies : g.dk_lies, dv ? g.dv : g.dk, t.head * g.z.group);
  using One = float(&)[1][D / 8][4];
  write_scaled<T, 1, D>(to, first + thread / 32 * 16, reinterpret_cast<One>(sum),
                        dv ? 1.f : w.p.g.z.scale, thread % 32);
}

// All tiles of a consumer warpgroup.
template <class T, int D, bool Causal>
__device__ __forceinline__ void multiply_tiles(const LongWork<D>& w) {
  Iteration before = {};
  int tiles = 0, count = 0;
#pragma unroll 1
  for (int i = blockIdx.x; i < w.p.sizes.tiles; i += gridDim.x) {
    const auto t = LongTile<Causal>::at(w.p.sizes, gridDim.x, i);
    if (Causal && t.blocks == 0) continue;
    DkvAccumulators<D> dk, dv;
    clear(dk);
    clear(dv);
    fence_accumulators(dk);
    fence_accumulators(dv);
    w.pipelines.keys.wait(tiles);
    auto x = t.begin(w.p.sizes);
#pragma unroll 1
    for (int j = 0; j < t.blocks; ++count, ++j, x = t.next(x, j, w.p.sizes)) {
      const bool last = j + 1 == t.blocks;
      const Iteration o{t.key_block, x.block(w.p.sizes) * LongShape<D>::queries, tiles, count,
                        last};
      process_query_block<T, D, Causal>(w, o, before, dk, dv);
      before = o;
    }
    wgmma_wait<0>();
    fence_accumulators(dk);
    write_dkv<T, D>(w, dk, t, false);
    write_dkv<T, D>(w, dv, t, true);
    ++tiles;
    if (LongTile<Causal>::more(w.p.sizes, gridDim.x, i)) continue;
    DqAccumulators<D> dq;
    w.pipelines.ds.wait(before.count);
    start_dq<T, D>(dq, w, before);
    wgmma_wait<0>();
    finish_dq<T, D>(dq, w, before);
  }
}

// The table of CausalTile.
__device__ __forceinline__ void store_turns(const LongParams& p) {
  const int blocks = p.sizes.query_blocks / p.sizes.query_splits;
  const int count = p.sizes.key_blocks * blocks;
  for (int64_t i = int64_t{blockIdx.x} * kRowThreads + threadIdx.x; i < count;
       i += int64_t{gridDim.x} * kRowThreads)
    p.turns[i] = causal_turn(p.sizes, static_cast<int>(i) / blocks, static_cast<int>(i) % blocks);
}

// Preprocess: lse_log2 and delta, turns, and zeroes dq_semaphore. A thread block handles kRowTokens
// queries of a sample and all their heads.
// grid: heads / a * pitch / kRowTokens.  sums: f32.  deterministic: yes.
template <class T>
__global__ __launch_bounds__(kRowThreads) void attention_grad_long_preprocess(
    const __grid_constant__ LongParams p) {
  begin();
  constexpr int unroll = 4, step = kRowThreads / kRowLanes / kRowTokens;  // heads
  const HeadSizes& z = p.g.z;
  for (int64_t i = int64_t{blockIdx.x} * kRowThreads + threadIdx.x; i < p.semaphore_count;
       i += int64_t{gridDim.x} * kRowThreads)
    p.dq_semaphore[i] = 0;
  if (p.turns != nullptr) store_turns(p);
  const int64_t token = int64_t{blockIdx.x} * kRowTokens + threadIdx.x / kRowLanes % kRowTokens;
  const int n = static_cast<int>(token / p.g.pitch), t = static_cast<int>(token % p.g.pitch);
  const int lane = threadIdx.x % kRowLanes, head = threadIdx.x / kRowLanes / kRowTokens;
  const HeadStrides &o_lies = z.o, &d_lies = p.g.dout_lies;
  const T* const o = static_cast<const T*>(p.g.o) + n * o_lies.n + t * o_lies.t + lane * 8;
  const T* const dout = static_cast<const T*>(p.g.dout) + n * d_lies.n + t * d_lies.t + lane * 8;
  const int o_step = static_cast<int>(o_lies.a), d_step = static_cast<int>(d_lies.a);
  for (int a = head; a < z.a; a += step * unroll) {
    float sum[unroll] = {};
    for (int c = lane * 8; c < z.width && t < z.t; c += kRowLanes * 8) {
      Vec<T, 8> x[unroll], y[unroll];
#pragma unroll
      for (int j = 0; j < unroll; ++j) {
        const int head = min(a + j * step, z.a - 1);
        x[j] = *reinterpret_cast<const Vec<T, 8>*>(o + (head * o_step + c - lane * 8));
        y[j] = *reinterpret_cast<const Vec<T, 8>*>(dout + (head * d_step + c - lane * 8));
      }
#pragma unroll
      for (int j = 0; j < unroll; ++j)
#pragma unroll
        for (int k = 0; k < 8; ++k) sum[j] = fmaf(to_float(x[j].v[k]), to_float(y[j].v[k]), sum[j]);
    }
#pragma unroll
    for (int j = 0; j < unroll; ++j)
      if (a + j * step < z.a) store_row_stats(p.g, n * z.a + a + j * step, t, sum[j]);
  }
}

// grid: at most as many thread blocks as are co-resident, since tiles wait for others; thread block
// i processes the tiles i, i + grid, ...  sums: f32, in an order fixed by the sizes and the grid.
// deterministic: yes.
template <class T, int D, bool Causal>
__global__ __launch_bounds__(LongShape<D>::threads,
                             1) void attention_grad_long(const __grid_constant__ LongParams p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const uint32_t at = shared_address(memory);
  if (threadIdx.x == 0) init_barriers<D>(at);
  __syncthreads();  // barriers are initialised
  begin();
  const int group = warpgroup();
  if (threadIdx.x >= 128 * LongShape<D>::groups) {
    fewer_registers<LongShape<D>::producer_registers>();
    const int thread = threadIdx.x - 128 * LongShape<D>::groups;
    if (thread == 0) load_tiles<D, Causal>(p, at);
    if (thread == 32) acquire_dq<D, Causal>(p, memory);
    if (thread == 64) release_dq<D, Causal>(p, at, 0);
    if (thread == 96) release_dq<D, Causal>(p, at, 1);
  } else {
    more_registers<LongShape<D>::consumer_registers>();
    LongWork<D> w{.p = p, .memory = memory, .at = at, .group = group};
    multiply_tiles<T, D, Causal>(w);
  }
}

// dk and dv from the partials of the query splits.
// grid: two thread blocks (dk, dv) per 64 keys of a head.  sums: f32, in the order of the queries.
// deterministic: yes.
template <class T, int D>
__global__ __launch_bounds__(128) void attention_grad_long_combine(
    const __grid_constant__ LongParams p) {
  begin();
  using S = LongShape<D>;
  const int64_t tiles = int64_t{p.sizes.heads} * p.sizes.key_blocks * S::dkv_tiles;
  const int64_t tile = blockIdx.x;
  const auto* const from = reinterpret_cast<const float4*>(p.dkv_partial) + threadIdx.x;
  float sum[1][D / 8][4];
  clear(sum);
#pragma unroll 1
  for (int r = 0; r < p.sizes.query_splits; ++r)
#pragma unroll
    for (int n = 0; n < D / 8; ++n) {
      const float4 x = from[(r * tiles + tile) * (S::dkv_tile_floats / 4) + n * 128];
      sum[0][n][0] += x.x, sum[0][n][1] += x.y, sum[0][n][2] += x.z, sum[0][n][3] += x.w;
    }
  const bool dv = tile % 2 == 1;
  const int head = static_cast<int>(tile / S::dkv_tiles / p.sizes.key_blocks);
  const int first = static_cast<int>(tile / 2 % (S::dkv_tiles / 2 * p.sizes.key_blocks)) * 64;
  write_scaled<T, 1, D>(key_rows_of<T>(p.g.z, dv ? p.g.dv_lies : p.g.dk_lies, dv ? p.g.dv : p.g.dk,
                                       head * p.g.z.group),
                        first + static_cast<int>(threadIdx.x) / 32 * 16, sum,
                        dv ? 1.f : p.g.z.scale, threadIdx.x % 32);
}

template <class T, int D, bool Causal>
LongKernel long_kernel_of_width() {
  using S = LongShape<D>;
  return {.preprocess = attention_grad_long_preprocess<T>,
          .run = attention_grad_long<T, D, Causal>,
          .combine = attention_grad_long_combine<T, D>,
          .threads = S::threads,
          .bytes = S::bytes,
          .keys = S::keys,
          .queries = S::queries,
          .dq_block_floats = S::groups * S::dq_tile_floats,
          .dkv_tiles = S::dkv_tiles,
          .dkv_tile_floats = S::dkv_tile_floats};
}
template <class T>
LongKernel long_kernel(int width) {
  return with_width<40, 64, 80, 128>(
      width, [](auto d) { return long_kernel_of_width<T, d.value, false>(); });
}
// Text models have heads of these widths.
template <class T>
LongKernel causal_long_kernel(int width) {
  return with_width<64, 128>(width,
                             [](auto d) { return long_kernel_of_width<T, d.value, true>(); });
}

}  // namespace ebb::ops::cuda
