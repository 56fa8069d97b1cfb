// The sums of A's rows over k, beside a product on sm_90a: gradients of biases beside those of
// weights.
//
// Warps that would be idle beside the loading thread read the stages of A as they come by, and
// multiply them with ones. The tiles of a row of tiles share its steps of k out among them; what
// each has summed is written out and added up in a second pass.
#pragma once

#include "backend/cuda/gemm_sm90_kernel.cuh"
#include "backend/cuda/mma.cuh"

namespace ebb::cuda::gemm {

// What a summing warp has of its rows of the tile: of each 16, lane / 4 and that + 8 in d[i][0] and
// d[i][2].
template <class C, int warp>
struct RowSums {
  static constexpr int rows = C::tile_m / C::sum_warps, blocks = rows / 16, first = warp * rows;
  float d[blocks][4];

  __device__ void clear() {
#pragma unroll
    for (int i = 0; i < blocks; ++i)
#pragma unroll
      for (int e = 0; e < 4; ++e) d[i][e] = 0;
  }
  // Adds a stage: 64 rows of k, of 64 values of m each, 8192 bytes from one 64 to the next, in the
  // swizzle of 128 bytes.
  __device__ void add(uint32_t stage) {
    constexpr uint32_t ones = std::is_same_v<typename C::T, __half> ? 0x3c003c00u : 0x3f803f80u;
    const int lane = threadIdx.x % 32;
    const uint32_t line = stage + (lane / 16 * 8 + lane % 8) * 128;
    const uint32_t unit = line + (lane / 8 % 2 ^ lane % 8) * 16;
#pragma unroll 1  // few registers are left
    for (int k = 0; k < 4; ++k)
#pragma unroll
      for (int i = 0; i < blocks; ++i) {
        const int m = first + i * 16;
        uint32_t a[4];
        load_matrices<true>(a, (unit ^ m % 64 * 2) + k * 16 * 128 + m / 64 * 8192);
        mma<typename C::T>(d[i], a, ones, ones);
      }
  }
  // To the line of the tile and its part; a tile that is not split has the first.
  __device__ void store(const Params& p, const Unit& u) const {
    const int lane = threadIdx.x % 32;
    if (lane % 4 != 0) return;
    for (int part = 0; part < p.splits; ++part) {
      if (u.part >= 0 && part != u.split) continue;
      float* line = p.row_sums + (int64_t{u.n} * p.splits + part) * p.m;
      const bool has = part == 0 || u.part >= 0;
#pragma unroll
      for (int i = 0; i < blocks; ++i) {
        const int row = u.m * C::tile_m + first + i * 16 + lane / 4;
        if (row < p.m) line[row] = has ? d[i][0] : 0;
        if (row + 8 < p.m) line[row + 8] = has ? d[i][2] : 0;
      }
    }
  }
};

// What a summing warp does.
template <class C, int warp>
__device__ void sum_rows_of(const Params& p, const Places<C>& s, Units units) {
  const int sharing = p.share == Share::none ? 1 : 2;
  Ring<C> ring{.stage = 0, .parity = 0};
  RowSums<C, warp> sums;
  do {
    const Unit& u = units.u;
    sums.clear();
    for (int step = u.first; step < u.last; ++step, ring.next()) {
      barrier_wait(s.full(ring.stage), ring.parity);
      if (step % p.row_sum_tiles == u.n) sums.add(s.a(ring.stage));
      __syncwarp();  // all lanes have read it
      if (static_cast<int>(threadIdx.x % 32) >= sharing) continue;
      if (sharing == 1)
        barrier_arrive(s.empty(ring.stage));
      else
        barrier_arrive_at(s.empty(ring.stage), threadIdx.x % 32);
    }
    sums.store(p, u);
  } while (units.next(p));
}

template <class C>
__device__ void sum_rows(const Params& p, const Places<C>& s, const Units& units) {
  const int warp = (static_cast<int>(threadIdx.x) - C::producer) / 32 - 1;
  if (warp == 0) sum_rows_of<C, 0>(p, s, units);
  if constexpr (C::sum_warps > 1)
    if (warp == 1) sum_rows_of<C, 1>(p, s, units);
}

}  // namespace ebb::cuda::gemm
