// The second pass of products on sm_90a: sums the parts of the tiles that were split.
#include <algorithm>

#include "backend/cuda/gemm_sm90_kernel.cuh"
#include "backend/cuda/launch.h"

namespace ebb::cuda::gemm {
namespace {

constexpr int threads = 256;

struct SumParams {
  Params product;
  const float* parts;
  int tile_m, tile_n;
  bool taps;  // columns are those of wgrad
  DType out;
};

__device__ float value_at(const void* data, DType t, int64_t i) {
  if (t == DType::f32) return static_cast<const float*>(data)[i];
  if (t == DType::f16) return to_float(static_cast<const __half*>(data)[i]);
  return to_float(static_cast<const __nv_bfloat16*>(data)[i]);
}

template <class T>
__device__ void store_four(void* out, int64_t i, const Vec<float, 4>& v, int count) {
  T* to = static_cast<T*>(out) + i;
  if (count == 4 && reinterpret_cast<uintptr_t>(to) % sizeof(Vec<T, 4>) == 0) {
    Vec<T, 4> four;
#pragma unroll
    for (int e = 0; e < 4; ++e) four.v[e] = from_float<T>(v.v[e]);
    *reinterpret_cast<Vec<T, 4>*>(to) = four;
    return;
  }
  for (int e = 0; e < count; ++e) to[e] = from_float<T>(v.v[e]);
}

// Columns of the result from a tile's column on: where they begin, and how many of 4 exist.
struct Run {
  int64_t first;
  int count;
};
__device__ Run run_at(const SumParams& q, int column) {
  const Params& p = q.product;
  if (!q.taps) return {column, ::min(4, p.n - column)};
  const int block = column / 64, tap = block / p.channel_blocks;
  const int c = (block - tap * p.channel_blocks) * 64 + column % 64;
  if (tap >= p.taps) return {0, 0};
  return {int64_t{tap} * p.channels + c, ::min(4, p.channels - c)};
}

__device__ void finish(const SumParams& q, const Unit& u, int i, Vec<float, 4> sum) {
  const Params& p = q.product;
  const int row = u.m * q.tile_m + i * 4 / q.tile_n;
  const Run run = run_at(q, u.n * q.tile_n + i * 4 % q.tile_n);
  if (row >= p.m || run.count <= 0) return;
  if (p.bias != nullptr)
    for (int e = 0; e < run.count; ++e) sum.v[e] += value_at(p.bias, p.bias_type, run.first + e);
  const int64_t at = u.batch * p.out_matrix + int64_t{row} * p.n + run.first;
  if (q.out == DType::f32)
    store_four<float>(p.out, at, sum, run.count);
  else if (q.out == DType::f16)
    store_four<__half>(p.out, at, sum, run.count);
  else
    store_four<__nv_bfloat16>(p.out, at, sum, run.count);
}

// Each thread of a block's first row writes 4 elements; its rows take turns at the parts.
// grid: (pieces of a tile, tiles).  sums: f32, in a fixed order.
__global__ void __launch_bounds__(threads) sum_parts_kernel(const __grid_constant__ SumParams q) {
  begin();
  using Four = Vec<float, 4>;
  __shared__ Four sums[threads];
  const Params& p = q.product;
  const int pair = p.share == Share::none ? 1 : 2, size = q.tile_m * q.tile_n;
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
  finish(q, u, i, sum);
}

}  // namespace

void sum_parts(const Problem& p, const Choice& c, const Operands& o, const Params& q,
               CudaDevice& device) {
  const SumParams s{.product = q,
                    .parts = static_cast<const float*>(o.workspace),
                    .tile_m = c.tile_m,
                    .tile_n = c.tile_n,
                    .taps = p.form == Form::wgrad,
                    .out = p.out};
  const int tiles = q.rest * (c.share == Share::none ? 1 : 2), pieces = c.tile_m * c.tile_n / 4;
  // more rows where there are few elements to fill the device with
  const int64_t filling = int64_t{device.multiprocessors()} * 1024;
  int rows = 1;
  while (rows < 8 && rows * 2 <= c.splits && int64_t{tiles} * pieces * rows < filling) rows *= 2;
  const auto width = static_cast<unsigned>(threads / rows);
  launch("sum_parts", sum_parts_kernel,
         {.grid = {blocks_for(pieces, width), static_cast<unsigned>(tiles)},
          .block = {width, static_cast<unsigned>(rows)}},
         s, device);
}

}  // namespace ebb::cuda::gemm
