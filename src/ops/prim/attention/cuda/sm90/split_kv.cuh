// attention on wgmma (sm_90a): work units. Tiles of a partial last wave are divided along the keys
// (split-KV, Dao et al. 2023, Flash-Decoding): every split writes partial results, and a second
// kernel combines them.
#pragma once

#include <cuda.h>

#include "ops/prim/attention/cuda/forward.cuh"

namespace ebb::ops::cuda {

struct Sm90Params {
  CUtensorMap q, k, v;  // of rank 4: columns, rows, heads, samples; boxes of 64 columns
  CUtensorMap q_tail, k_tail, v_tail;  // boxes of 16 columns, if the shape has a tail
  CUtensorMap o, o_tail;               // if the shape has a tail
  ForwardParams f;                     // query_blocks: query tiles per head
  // A work unit is one of the first `full_tiles` tiles, or one of `splits` splits of a later one.
  // A split writes its accumulators of o, not yet divided by row_sum, as
  // [split, warpgroup, D / 8, thread], and row_max and row_sum of its rows as [split, row].
  int full_tiles, splits, work_units;
  float4* o_partial;
  float2* row_stats;
};

// A tile, or a split of its key blocks.
struct WorkUnit {
  int tile, begin, end;
  int split;  // among the splits of all tiles; -1: the tile is not split
};
// Masked kernels start with the tiles that have the most visible keys, for load balance. A unit
// ends with the last block that any of its queries attends to; it has at least one block.
template <class S>
__device__ __forceinline__ WorkUnit masked_work_unit(const Sm90Params& p, int i) {
  const int heads = static_cast<int>(p.f.z.heads), head = i % heads;
  const int block = p.f.query_blocks - 1 - i / heads;
  const HeadMask mask(p.f.z, p.f.mask, head);
  const int key_limit = mask.key_limit(::min((block + 1) * S::rows, p.f.z.t) - 1);
  return {head * p.f.query_blocks + block, 0, (::max(key_limit, 1) + S::keys - 1) / S::keys, -1};
}
template <class S>
__device__ __forceinline__ WorkUnit work_unit(const Sm90Params& p, int blocks, int i) {
  if constexpr (S::masked) return masked_work_unit<S>(p, i);
  if (!S::split_kv || i < p.full_tiles) return {i, 0, blocks, -1};
  const int split = i - p.full_tiles, index = split % p.splits;
  return {p.full_tiles + split / p.splits, index * blocks / p.splits,
          (index + 1) * blocks / p.splits, split};
}

// Partial results of a split: a thread's o of two rows, their row_max and its columns' share of
// row_sum. Returns whether both row sums are at most `limit`.
template <int D, int Groups>
__device__ __forceinline__ bool store_partial(const Sm90Params& p, int split, int group,
                                              const float (&o)[D / 8][4], const float (&row_max)[2],
                                              const float (&partial_sum)[2], float limit) {
  const int thread = threadIdx.x % 128, partial = split * Groups + group;
#pragma unroll
  for (int n = 0; n < D / 8; ++n)
    p.o_partial[(partial * (D / 8) + n) * 128 + thread] = {o[n][0], o[n][1], o[n][2], o[n][3]};
  bool in_range = true;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float sum = quad_sum(partial_sum[h]);
    in_range &= sum <= limit;
    if (thread % 4 == 0)
      p.row_stats[partial * 64 + thread / 32 * 16 + 8 * h + thread % 32 / 4] = {row_max[h], sum};
  }
  return in_range;
}

// Combines the splits of a tile.
// grid: a thread block for each warpgroup's 64 rows of a split tile.  sums: f32, in the order of
// the splits.  deterministic: yes.
template <class T, class S>
__global__ __launch_bounds__(128) void attention_sm90_combine(
    const __grid_constant__ Sm90Params p) {
  begin();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int split_tile = blockIdx.x / S::groups, group = blockIdx.x % S::groups,
            tile = p.full_tiles + split_tile;
  const auto partial = [&](int r) { return (split_tile * p.splits + r) * S::groups + group; };
  const auto row = [&](int r, int h) {
    return p.row_stats[partial(r) * 64 + warp * 16 + 8 * h + lane / 4];
  };
  float row_max[2] = {-INFINITY, -INFINITY}, sum[2] = {}, o[1][S::width / 8][4] = {};
  for (int r = 0; r < p.splits; ++r)
    for (int h = 0; h < 2; ++h) row_max[h] = fmaxf(row_max[h], row(r, h).x);
#pragma unroll 1
  for (int r = 0; r < p.splits; ++r) {
    float factor[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float2 of = row(r, h);
      factor[h] = fast_exp2(of.x - row_max[h]);
      sum[h] = fmaf(of.y, factor[h], sum[h]);
    }
    const float4* const from = p.o_partial + partial(r) * (S::width / 8) * 128 + threadIdx.x;
#pragma unroll
    for (int n = 0; n < S::width / 8; ++n) {
      const float4 x = from[n * 128];
      o[0][n][0] = fmaf(x.x, factor[0], o[0][n][0]), o[0][n][1] = fmaf(x.y, factor[0], o[0][n][1]);
      o[0][n][2] = fmaf(x.z, factor[1], o[0][n][2]), o[0][n][3] = fmaf(x.w, factor[1], o[0][n][3]);
    }
  }
  const int head = tile / p.f.query_blocks,
            begin = tile % p.f.query_blocks * S::rows + group * 64 + warp * 16;
  float factor[1][2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    factor[0][h] = 1 / sum[h];
    const int at = begin + 8 * h + lane / 4;
    if (lane % 4 == 0 && at < p.f.z.t)
      p.f.lse[int64_t{head} * p.f.z.t + at] = (row_max[h] + log2f(sum[h])) * kLn2;
  }
  write_rows<T, 1, S::width>(rows_of<T>(p.f.z, p.f.z.o, p.f.o, head, p.f.z.t), begin, o, factor,
                             lane);
}

}  // namespace ebb::ops::cuda
