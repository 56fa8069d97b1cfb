// attention on wgmma (sm_90a): units of work. Where the last tiles would leave SMs idle
// they are cut into ranges of keys, which are summed apart and joined by a second kernel.
#pragma once

#include <cuda.h>

#include "ops/prim/attention/cuda_forward.cuh"

namespace ebb::ops::cuda {

struct Sm90Params {
  CUtensorMap q, k, v;  // of rank 4: columns, rows, heads, samples; boxes of 64 columns
  CUtensorMap q_rest, k_rest, v_rest;  // boxes of 16 columns, if the shape has a rest
  CUtensorMap o, o_rest;               // if the shape has a rest
  ForwardParams f;                     // parts: tiles of queries a head
  // The tiles behind the first `whole` are cut into `ranges` ranges of keys each, of which a unit
  // of work is one; a whole tile is one too. A range leaves a thread's registers of o, not divided
  // by the sums of weights, [range, warpgroup, D / 8, thread], and of each row the highest score
  // and the sum, [range, row].
  int whole, ranges, units;
  float4* sums;
  float2* rows;
};

// A tile, or a range of its blocks of keys.
struct Sm90Unit {
  int tile, begin, end;
  int range;  // among all ranges; -1: the tile is whole
};
// Of a masked kernel the tiles that see most keys come first, and a unit ends with the last block
// that any of its queries sees; there is one block at least.
template <class S>
__device__ __forceinline__ Sm90Unit masked_unit(const Sm90Params& p, int i) {
  const int heads = static_cast<int>(p.f.z.heads), head = i % heads;
  const int part = p.f.parts - 1 - i / heads;
  const HeadMask mask(p.f.z, p.f.mask, head);
  const int seen = mask.seen(::min((part + 1) * S::rows, p.f.z.t) - 1);
  return {head * p.f.parts + part, 0, (::max(seen, 1) + S::keys - 1) / S::keys, -1};
}
template <class S>
__device__ __forceinline__ Sm90Unit sm90_unit(const Sm90Params& p, int blocks, int i) {
  if constexpr (S::masked) return masked_unit<S>(p, i);
  if (!S::cuts || i < p.whole) return {i, 0, blocks, -1};
  const int range = i - p.whole, part = range % p.ranges;
  return {p.whole + range / p.ranges, part * blocks / p.ranges, (part + 1) * blocks / p.ranges,
          range};
}

// What a range of keys leaves: a thread's o of two rows, their highest scores and its part of their
// sums. Returns whether both sums are at most `limit`.
template <int D, int Groups>
__device__ __forceinline__ bool leave(const Sm90Params& p, int range, int group,
                                      const float (&o)[D / 8][4], const float (&highest)[2],
                                      const float (&part)[2], float limit) {
  const int thread = threadIdx.x % 128, piece = range * Groups + group;
#pragma unroll
  for (int n = 0; n < D / 8; ++n)
    p.sums[(piece * (D / 8) + n) * 128 + thread] = {o[n][0], o[n][1], o[n][2], o[n][3]};
  bool good = true;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float sum = row_sum(part[h]);
    good &= sum <= limit;
    if (thread % 4 == 0)
      p.rows[piece * 64 + thread / 32 * 16 + 8 * h + thread % 32 / 4] = {highest[h], sum};
  }
  return good;
}

// Joins the ranges of a tile.
// grid: a thread block for each warpgroup's part of a tile that is cut.  sums: f32, in the
// order of the ranges.  deterministic: yes.
template <class T, class S>
__global__ __launch_bounds__(128) void attention_sm90_ranges(const __grid_constant__ Sm90Params p) {
  begin();
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int cut = blockIdx.x / S::groups, group = blockIdx.x % S::groups, tile = p.whole + cut;
  const auto piece = [&](int r) { return (cut * p.ranges + r) * S::groups + group; };
  const auto row = [&](int r, int h) {
    return p.rows[piece(r) * 64 + warp * 16 + 8 * h + lane / 4];
  };
  float highest[2] = {-INFINITY, -INFINITY}, sum[2] = {}, o[1][S::width / 8][4] = {};
  for (int r = 0; r < p.ranges; ++r)
    for (int h = 0; h < 2; ++h) highest[h] = fmaxf(highest[h], row(r, h).x);
#pragma unroll 1
  for (int r = 0; r < p.ranges; ++r) {
    float factor[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float2 of = row(r, h);
      factor[h] = fast_exp2(of.x - highest[h]);
      sum[h] = fmaf(of.y, factor[h], sum[h]);
    }
    const float4* const from = p.sums + piece(r) * (S::width / 8) * 128 + threadIdx.x;
#pragma unroll
    for (int n = 0; n < S::width / 8; ++n) {
      const float4 x = from[n * 128];
      o[0][n][0] = fmaf(x.x, factor[0], o[0][n][0]), o[0][n][1] = fmaf(x.y, factor[0], o[0][n][1]);
      o[0][n][2] = fmaf(x.z, factor[1], o[0][n][2]), o[0][n][3] = fmaf(x.w, factor[1], o[0][n][3]);
    }
  }
  const int head = tile / p.f.parts, begin = tile % p.f.parts * S::rows + group * 64 + warp * 16;
  float factor[1][2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    factor[0][h] = 1 / sum[h];
    const int at = begin + 8 * h + lane / 4;
    if (lane % 4 == 0 && at < p.f.z.t)
      p.f.lse[int64_t{head} * p.f.z.t + at] = (highest[h] + log2f(sum[h])) * kLn2;
  }
  write_rows<T, 1, S::width>(out_rows_of<T>(p.f.z, p.f.o, head), begin, o, factor, lane);
}

}  // namespace ebb::ops::cuda
