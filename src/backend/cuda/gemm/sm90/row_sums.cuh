// Row sums of A over k in a GEMM on sm_90a: the bias-gradient epilogue of a weight gradient.
//
// Spare warps of the producer warpgroup read the stages of A in shared memory and add them up
// (multiplying them by ones on the busy tensor cores took longer). The tiles of
// a row of tiles divide its steps of k among them; the partial sums of each are written out and
// reduced in a second pass.
#pragma once

#include "backend/cuda/gemm/sm90/split_k.cuh"

namespace ebb::cuda::gemm {

// A warp's elements of its rows of the tile: 8 consecutive of each 64, of every 4th value of
// k. Two warps take the halves of a step.
template <class C>
struct RowSums {
  static constexpr int blocks = C::tile_m / 64, steps = 64 / C::sum_warps;
  float d[blocks][8];
  int warp;

  __device__ explicit RowSums(int warp) : warp(warp) {}
  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < blocks; ++i)
#pragma unroll
      for (int e = 0; e < 8; ++e) d[i][e] = 0;
  }
  // Adds a stage: 64 rows of k, of 64 values of m each, 8192 bytes from one 64 to the next, in the
  // swizzle of 128 bytes.
  __device__ void add(uint32_t stage) {
    const int lane = threadIdx.x % 32, first = warp * steps + lane / 8;
    const uint32_t line = stage + first * 128, unit = (lane % 8 ^ first % 8) * 16;
#pragma unroll 1  // few registers are left
    for (int k = 0; k < steps; k += 8)
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int i = 0; i < blocks; ++i) {
          uint32_t v[4];
          load_vector(line + (k + half * 4) * 128 + i * 8192 + (unit ^ half * 64), v);
#pragma unroll
          for (int e = 0; e < 4; ++e) {
            const float2 two = unpack<typename C::T>(v[e]);
            d[i][2 * e] += two.x;
            d[i][2 * e + 1] += two.y;
          }
        }
  }
  // Writes the partial sums of the tile's split: one line per warp, or half of one. The last split,
  // which may be the only one, also writes the lines of splits that the tile does not have.
  __device__ void store(const Params& p, const WorkUnit& u) {
    const int lane = threadIdx.x % 32, half = C::sum_warps > 1 ? warp : lane / 16;
#pragma unroll
    for (int i = 0; i < blocks; ++i)
#pragma unroll
      for (int e = 0; e < 8; ++e) {
        d[i][e] += __shfl_xor_sync(~0u, d[i][e], 8);
        if (C::sum_warps > 1) d[i][e] += __shfl_xor_sync(~0u, d[i][e], 16);
      }
    if (lane / 8 % 2 != 0 || (C::sum_warps > 1 && lane >= 8)) return;
    const int end = u.last == p.steps ? p.split_k : u.split + 1;
    for (int part = u.split; part < end; ++part) {
      const bool has = part == u.split;
      float* line = p.row_sums + ((int64_t{u.n} * p.split_k + part) * 2 + half) * p.m;
#pragma unroll
      for (int i = 0; i < blocks; ++i) {
        const int row = u.m * C::tile_m + i * 64 + lane % 8 * 8;
        if (row >= p.m) continue;  // m is a multiple of 8
#pragma unroll
        for (int e = 0; e < 8; ++e) line[row + e] = has ? d[i][e] : 0;
      }
    }
  }
};

// What a summing warp does.
template <class C>
__device__ void sum_rows(const Params& p, const SharedStorage<C>& s, WorkUnits work_units) {
  const int warp = (static_cast<int>(threadIdx.x) - C::producer) / 32 - 1;
  if (warp < 0 || warp >= C::sum_warps) return;
  const int sharing = p.multicast == Multicast::none ? 1 : 2;
  State state{.stages = stages_of<C>(p)};
  RowSums<C> sums(warp);
  do {
    const WorkUnit& u = work_units.u;
    sums.clear();
    int mine = u.first - u.first % p.row_sum_tiles + u.n;  // the next step to be summed
    if (mine < u.first) mine += p.row_sum_tiles;
    for (int step = u.first; step < u.last; ++step, state.advance()) {
      barrier_wait(s.full(state.index), state.phase);
      if (step == mine) {
        sums.add(s.a(state.index));
        mine += p.row_sum_tiles;
      }
      __syncwarp();  // all lanes have read it
      if (static_cast<int>(threadIdx.x % 32) >= sharing) continue;
      if (sharing == 1)
        barrier_arrive(s.empty(state.index));
      else
        barrier_arrive_at(s.empty(state.index), threadIdx.x % 32);
    }
    sums.store(p, u);
  } while (work_units.next(p));
  __syncwarp();
  if (p.cluster_split_k) named_barrier_arrive(1, read_by<C>(p));  // see store_partial
}

}  // namespace ebb::cuda::gemm
