// The split-K reduction of GEMMs on sm_90a: sums the partials and applies the epilogue.
#include <algorithm>

#include "backend/cuda/device/launch.h"
#include "backend/cuda/gemm/sm90/split_k.cuh"

namespace ebb::cuda::gemm {
namespace {

constexpr int threads = 256;

struct ReduceParams {
  Params product;
  const float* partials;
  FullTile data_parallel;
  int tiles, blocks;  // of a tile; those behind the tiles' blocks sum A's rows
  float* row_sums;
  int columns;  // of lines of A's sums, of a block
};

// The sums of A's rows: `columns` of them by a block, whose threads are interleaved over the lines.
__device__ void reduce_row_sums(const ReduceParams& q, int block, float* shared) {
  const Params& p = q.product;
  const int lines = 2 * p.row_sum_tiles * p.split_k,
            thread = threadIdx.y * blockDim.x + threadIdx.x;
  const int i = block * q.columns + thread % q.columns;
  float sum = 0;
  if (i < p.m)
#pragma unroll 8
    for (int line = thread / q.columns; line < lines; line += threads / q.columns)
      sum += p.row_sums[int64_t{line} * p.m + i];
  for (int half = threads / 2; half >= q.columns; half /= 2) {
    shared[thread] = sum;
    __syncthreads();  // all sums are there
    if (thread < half) sum += shared[thread + half];
    __syncthreads();  // they have been read
  }
  if (thread < q.columns && i < p.m) q.row_sums[i] = sum;
}

// Each thread of a CTA's first row writes 4 elements; its rows are interleaved over the splits.
// grid: vectors of tiles, tile by tile; then of A's rows.  sums: f32, in a fixed order.
__global__ void __launch_bounds__(threads)
    reduce_split_k_kernel(const __grid_constant__ ReduceParams q) {
  begin();
  using Four = Vec<float, 4>;
  __shared__ Four sums[threads];
  const Params& p = q.product;
  const int behind = static_cast<int>(blockIdx.x) - q.tiles * q.blocks;
  if (behind >= 0) return reduce_row_sums(q, behind, reinterpret_cast<float*>(sums));
  const int pair = p.multicast == Multicast::none ? 1 : 2,
            size = q.data_parallel.tile_m * q.data_parallel.tile_n;
  const int place = blockIdx.x / q.blocks, tile = place / pair, rank = place - tile * pair;
  const int i = (blockIdx.x - place * q.blocks) * blockDim.x + threadIdx.x;
  Four sum = {};
  if (i * 4 < size) {
    const float* from = q.partials + (int64_t{tile} * p.split_k * pair + rank) * size + i * 4;
#pragma unroll 4
    for (int s = threadIdx.y; s < p.split_k; s += blockDim.y) {
      const Four v = *reinterpret_cast<const Four*>(from + int64_t{s} * pair * size);
#pragma unroll
      for (int e = 0; e < 4; ++e) sum.v[e] += v.v[e];
    }
  }
  if (blockDim.y > 1) {
    sums[threadIdx.y * blockDim.x + threadIdx.x] = sum;
    __syncthreads();  // all rows' sums are there
  }
  if (threadIdx.y != 0 || i * 4 >= size) return;
  for (unsigned y = 1; y < blockDim.y; ++y)
#pragma unroll
    for (int e = 0; e < 4; ++e) sum.v[e] += sums[y * blockDim.x + threadIdx.x].v[e];
  WorkUnit u = {};
  set_tile(p, p.data_parallel + tile, rank, u);
  finish(p, q.data_parallel, u, i, sum);
}

}  // namespace

void reduce_split_k(const Problem& p, const Choice& c, const Operands& o, const Params& q,
                    CudaDevice& device) {
  const int tiles = c.cluster_split_k ? 0 : q.rest.by * (c.multicast == Multicast::none ? 1 : 2);
  const int vectors = c.tile_m * c.tile_n / 4;
  // more rows where there are few elements to fill the device with
  const int64_t filling = int64_t{device.sm_count()} * 1024;
  int rows = 1;
  while (rows < 8 && rows * 2 <= c.split_k && int64_t{tiles} * vectors * rows < filling) rows *= 2;
  const auto width = static_cast<unsigned>(threads / rows);
  const auto blocks = static_cast<int>(blocks_for(vectors, width));
  const int columns = q.row_sum_tiles * q.split_k > 32 ? 8 : 32;
  const auto row_blocks = p.row_sums ? static_cast<int>(blocks_for(p.m, columns)) : 0;
  launch("reduce_split_k", reduce_split_k_kernel,
         {.grid = static_cast<unsigned>(tiles * blocks + row_blocks),
          .block = {width, static_cast<unsigned>(rows)}},
         ReduceParams{.product = q,
                      .partials = static_cast<const float*>(o.workspace),
                      .data_parallel = {.tile_m = c.tile_m,
                                        .tile_n = c.tile_n,
                                        .taps = p.form == Form::wgrad,
                                        .out = p.out},
                      .tiles = tiles,
                      .blocks = blocks,
                      .row_sums = static_cast<float*>(o.row_sums),
                      .columns = columns},
         device);
}

}  // namespace ebb::cuda::gemm
