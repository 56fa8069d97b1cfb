// The kernel behind problem.h: a persistent, warp-specialised GEMM with a producer warpgroup and
// consumer warpgroups. Here: its constants and shared memory.
//
// A CTA computes work units: tiles of tile_m x tile_n over a range of k. One producer thread fills
// a pipeline of stages in shared memory by TMA. Each consumer warpgroup multiplies its rows (or
// columns) of the tile by wgmma and runs its epilogue while the next tile is being loaded or, in
// ping-pong, multiplied by the other consumer.
#pragma once

#include "backend/cuda/gemm/sm90/params.h"
#include "backend/cuda/kit/pipeline.cuh"
#include "backend/cuda/kit/wgmma.cuh"

namespace ebb::cuda::gemm {

// The constants of one kernel.
template <class T_, Form form_, class Tile_>
struct Config {
  using T = T_;
  static constexpr Form form = form_;
  static constexpr bool sums = form == Form::fprop || Tile_::sums;  // takes further products
  using Params = std::conditional_t<sums, SumParams, gemm::Params>;
  static constexpr int tile_m = Tile_::m, tile_n = Tile_::n;
  static constexpr int ctas_per_sm = Tile_::ctas_per_sm;
  static constexpr int a_mn = a_transposed(form), b_mn = b_transposed(form);
  // ping-pong: one consumer runs its epilogue while the other issues MMAs
  static constexpr bool ping_pong = Tile_::ping_pong;
  static constexpr int math_groups = ping_pong ? 2 : 1;
  // consumer warpgroups along m and n of a tile; blocks of 64 rows, and columns, of each
  static constexpr int across_m = ping_pong || tile_m == 64 ? 1 : tile_m == 192 ? 3 : 2;
  static constexpr int across_n = !ping_pong && tile_m == 64 && tile_n >= 128 ? 2 : 1;
  static constexpr int rows = tile_m / 64 / across_m, columns = tile_n / across_n;
  static constexpr int groups = across_m * across_n, math_threads = 128 * groups;
  static constexpr int consumers = groups * math_groups;
  // A producer warpgroup gives registers to the consumers; with two CTAs per SM a warp loads.
  static constexpr bool move_registers = ctas_per_sm == 1 && consumers > 1;
  static constexpr int producer = 128 * consumers;  // the first loading thread
  // warps of the producer warpgroup that compute A's row sums
  static constexpr int sum_warps = !sums_rows(form) ? 0 : move_registers ? 2 : 1;
  static constexpr int threads = producer + (move_registers ? 128 : 32 + 32 * sum_warps);
  static constexpr bool many_accumulators = rows * columns / 2 > 128;
  // in total at most the registers of 384 (or 512) threads at launch; warps with row sums need more
  // than the one that issues loads
  static constexpr bool summing = sum_warps > 0 && consumers == 2;
  static constexpr int producer_registers = many_accumulators ? 40 : summing ? 72 : 56;
  static constexpr int consumer_registers = consumers == 3      ? 152
                                            : many_accumulators ? 232
                                            : summing           ? 216
                                                                : 224;
  static constexpr int a_bytes = tile_m * 128;
  static constexpr bool b_narrow = b_mn && form <= Form::tt && narrow_rows(tile_n);
  static constexpr int b_row_bytes = b_narrow ? 64 : 128;
  static constexpr int b_bytes = (b_mn && !b_narrow ? (tile_n + 63) / 64 * 64 : tile_n) * 128;
  static constexpr int stage_bytes = a_bytes + b_bytes;
  // staging of results: 16 rows of `chunk` columns per warp, or of 32 in f32
  static constexpr int chunk = columns % 64 == 0 ? 64 : 32;
  static constexpr int buffers = Tile_::buffers;
  static constexpr int buffer_bytes = 2048;
  static constexpr int out_bytes = consumers * 4 * buffers * buffer_bytes;
  static constexpr int most_stages = 12, barrier_bytes = 256;
  static constexpr int bias_buffers = ctas_per_sm == 1 ? 2 * math_groups : 1;
  static constexpr int bias_bytes = bias_buffers * tile_n * 4;
  static constexpr int first_stage = (out_bytes + barrier_bytes + bias_bytes + 1023) / 1024 * 1024;
  static constexpr int stages_beside(int others) {
    const int fitting = (233472 / (others + 1) - 1024 - first_stage) / stage_bytes;
    return fitting < most_stages ? fitting : most_stages;
  }
  static constexpr int stages = stages_beside(ctas_per_sm - 1), one_cta_stages = stages_beside(0);
  // whether launches differ in the number of stages
  static constexpr bool flexible = ctas_per_sm > 1;
  // cluster split-K: the partials fit into the shared memory of the operands
  static constexpr bool can_cluster_split_k = form != Form::gated && form != Form::phases &&
                                              !ping_pong && tile_n % 32 == 0 &&
                                              tile_m * tile_n * 4 <= stages * stage_bytes;
  static constexpr bool loads_source =
      !a_transposed(form) && form != Form::gated && form != Form::phases;
  // rows of factors take the second bias buffer of a consumer
  static constexpr bool scales = form == Form::nt && ctas_per_sm == 1;
  // rows of residuals need registers in addition to the accumulators
  static constexpr bool adds_row_residual = loads_source && !many_accumulators;
  // a thread has the same columns of both halves, in boxes of their own
  static_assert(form != Form::gated || (across_n == 1 && columns % 64 == 0));
  static_assert(stages >= 2 && (!b_mn || across_n == 1 || columns % 64 == 0));
};

// The layout of shared memory.
template <class C>
struct SharedStorage {
  uint32_t base;
  __device__ uint32_t a(int stage) const { return base + C::first_stage + stage * C::stage_bytes; }
  __device__ uint32_t b(int stage) const { return a(stage) + C::a_bytes; }
  __device__ uint32_t out(int warp) const { return base + warp * C::buffers * C::buffer_bytes; }
  __device__ uint32_t full(int stage) const { return base + C::out_bytes + 8 * stage; }
  __device__ uint32_t empty(int stage) const { return full(stage) + 8 * C::most_stages; }
  // bias of the tile's columns, f32; double-buffered
  __device__ uint32_t bias(int turn) const {
    return base + C::out_bytes + C::barrier_bytes + turn % C::bias_buffers * C::tile_n * 4;
  }
};

// The consumer (math) group of a thread, and its index there.
template <class C>
__device__ int math_group() {
  return !C::ping_pong ? 0 : threadIdx.x / C::math_threads;
}
template <class C>
__device__ int math_thread() {
  return !C::ping_pong ? threadIdx.x : threadIdx.x % C::math_threads;
}

using State = PipelineState<dynamic_stages>;

template <class C>
__device__ int stages_of(const Params& p) {
  return C::flexible ? p.stages : C::stages;
}

}  // namespace ebb::cuda::gemm
