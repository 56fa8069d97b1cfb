// The second pass of products on sm_90a: sums the parts of the tiles that were split, and adds what
// the first would have added.
#include <algorithm>

#include "backend/cuda/gemm_sm90_parts.cuh"
#include "backend/cuda/launch.h"

namespace ebb::cuda::gemm {
namespace {

constexpr int threads = 256;

struct SumParams {
  Params product;
  const float* parts;
  Whole whole;
  int blocks;  // along y, for the tiles; those of the row below sum A's rows
  float* row_sums;
};

// The sums of A's rows: each thread of a block's first row writes one at a time.
__device__ void sum_row_sums(const SumParams& q, float* shared) {
  const Params& p = q.product;
  const int lines = p.row_sum_tiles * p.splits;
  for (int first = blockIdx.x * blockDim.x; first < p.m; first += gridDim.x * blockDim.x) {
    const int i = first + threadIdx.x;
    float sum = 0;
    if (i < p.m)
#pragma unroll 4
      for (int line = threadIdx.y; line < lines; line += blockDim.y)
        sum += p.row_sums[int64_t{line} * p.m + i];
    __syncthreads();  // the sums before have been read
    shared[threadIdx.y * blockDim.x + threadIdx.x] = sum;
    __syncthreads();  // all rows' sums are there
    if (threadIdx.y != 0 || i >= p.m) continue;
    for (unsigned y = 1; y < blockDim.y; ++y) sum += shared[y * blockDim.x + threadIdx.x];
    q.row_sums[i] = sum;
  }
}

// Each thread of a block's first row writes 4 elements; its rows take turns at the parts.
// grid: (pieces of a tile, tiles; and a row for A's rows).  sums: f32, in a fixed order.
__global__ void __launch_bounds__(threads) sum_parts_kernel(const __grid_constant__ SumParams q) {
  begin();
  using Four = Vec<float, 4>;
  __shared__ Four sums[threads];
  const Params& p = q.product;
  if (static_cast<int>(blockIdx.y) == q.blocks)
    return sum_row_sums(q, reinterpret_cast<float*>(sums));
  const int pair = p.share == Share::none ? 1 : 2, size = q.whole.tile_m * q.whole.tile_n;
  const int i = blockIdx.x * blockDim.x + threadIdx.x, tile = blockIdx.y / pair;
  const int rank = blockIdx.y - tile * pair;
  Four sum = {};
  if (i * 4 < size) {
    const float* from = q.parts + (int64_t{tile} * p.splits * pair + rank) * size + i * 4;
#pragma unroll 4
    for (int s = threadIdx.y; s < p.splits; s += blockDim.y) {
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
  Unit u = {};
  place_tile(p, p.whole + tile, rank, u);
  finish(p, q.whole, u, i, sum);
}

}  // namespace

void sum_parts(const Problem& p, const Choice& c, const Operands& o, const Params& q,
               CudaDevice& device) {
  const int tiles = q.rest.by * (c.share == Share::none ? 1 : 2), pieces = c.tile_m * c.tile_n / 4;
  // more rows where there are few elements to fill the device with
  const int64_t filling = int64_t{device.multiprocessors()} * 1024;
  int rows = 1;
  const int lines = std::max(c.splits, q.row_sum_tiles * c.splits / 8);
  while (rows < 8 && rows * 2 <= lines && int64_t{tiles} * pieces * rows < filling) rows *= 2;
  const auto width = static_cast<unsigned>(threads / rows);
  launch("sum_parts", sum_parts_kernel,
         {.grid = {blocks_for(pieces, width), static_cast<unsigned>(tiles + (p.row_sums ? 1 : 0))},
          .block = {width, static_cast<unsigned>(rows)}},
         SumParams{.product = q,
                   .parts = static_cast<const float*>(o.workspace),
                   .whole = {.tile_m = c.tile_m,
                             .tile_n = c.tile_n,
                             .taps = p.form == Form::wgrad,
                             .out = p.out},
                   .blocks = tiles,
                   .row_sums = static_cast<float*>(o.row_sums)},
         device);
}

}  // namespace ebb::cuda::gemm
