#include "backend/cuda/device/launch.h"
#include "backend/cuda/kit/elements.cuh"
#include "backend/cuda/kit/fault.cuh"
#include "ir/kernel.h"
#include "ops/prim/embedding_grad/op.h"

namespace ebb::ops::cuda {
namespace {

using namespace ebb::cuda;

constexpr int threads = 128, columns_each = 4, columns = threads * columns_each;
constexpr int ids_each = 8;  // ids that a thread looks at before the block decides to go on

template <class T>
struct Params {
  const T* dy;
  const int64_t* ids;
  float* out;
  int64_t rows, count, width, column_tiles;  // column_tiles: of `columns` columns, per row
  Fault* fault;
};

// The numbers of the ids in [first, first + threads) that name `row`, in order. Returns how many.
template <class T>
__device__ int find_row(const Params<T>& p, int64_t first, int64_t row, int* found) {
  __shared__ int in_warp[threads / 32];
  const int64_t i = first + threadIdx.x;
  const bool mine = i < p.count && p.ids[i] == row;
  const unsigned votes = __ballot_sync(~0u, mine);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  __syncthreads();  // found and in_warp are not read any more
  if (lane == 0) in_warp[warp] = __popc(votes);
  __syncthreads();
  int before = 0, all = 0;
  for (int w = 0; w < threads / 32; ++w) {
    if (w < warp) before += in_warp[w];
    all += in_warp[w];
  }
  if (mine) found[before + __popc(votes & ((1u << lane) - 1))] = threadIdx.x;
  __syncthreads();  // found is complete
  return all;
}

// Whether one of the ids in [first, first + threads * ids_each) names `row`.
template <class T>
__device__ bool has_row(const Params<T>& p, int64_t first, int64_t row) {
  bool mine = false;
#pragma unroll
  for (int k = 0; k < ids_each; ++k) {
    const int64_t i = first + k * threads + threadIdx.x;
    mine |= i < p.count && p.ids[i] == row;
  }
  return __syncthreads_or(mine);
}

// Reports ids that are out of range. Call it from one block.
template <class T>
__device__ void check_ids(const Params<T>& p) {
  for (int64_t i = threadIdx.x; i < p.count; i += threads)
    if (p.ids[i] < 0 || p.ids[i] >= p.rows) report(p.fault, id_out_of_range, p.ids[i], p.rows);
}

// out[r, :] = sum of dy[i, :] over the i with ids[i] = r.
// grid: one block for 512 columns of a row.  sums: f32, in the order of the ids.  deterministic.
template <class T>
__global__ __launch_bounds__(threads) void embedding_grad_rows(
    const __grid_constant__ Params<T> p) {
  begin();
  __shared__ int found[threads];
  const int64_t row = blockIdx.x / p.column_tiles, column_tile = blockIdx.x % p.column_tiles;
  const int64_t column = column_tile * columns + threadIdx.x;
  float sum[columns_each] = {};
  if (blockIdx.x == 0) check_ids(p);
  for (int64_t first = 0; first < p.count; first += threads) {
    if (first % (threads * ids_each) == 0 && !has_row(p, first, row)) {
      first += threads * (ids_each - 1);
      continue;
    }
    const int all = find_row(p, first, row, found);
    for (int k = 0; k < all; ++k) {
      const T* const dy = p.dy + (first + found[k]) * p.width;
#pragma unroll
      for (int j = 0; j < columns_each; ++j)
        if (column + j * threads < p.width) sum[j] += to_float(dy[column + j * threads]);
    }
  }
#pragma unroll
  for (int j = 0; j < columns_each; ++j)
    if (column + j * threads < p.width) p.out[row * p.width + column + j * threads] = sum[j];
}

Program prepare(const Signature& s, const Tune&, Device& device) {
  const int64_t rows = s.as<EmbeddingGrad>().rows, width = s.in[0].shape[-1];
  const int64_t count = s.in[1].shape.numel(), column_tiles = (width + columns - 1) / columns;
  return {.run = [=, dtype = s.in[0].dtype, &device](const Call& c) {
    visit_float(dtype, [&](auto zero) {
      using T = decltype(zero);
      const Params<T> p{.dy = static_cast<const T*>(c.in[0]),
                        .ids = static_cast<const int64_t*>(c.in[1]),
                        .out = static_cast<float*>(c.out[0]),
                        .rows = rows,
                        .count = count,
                        .width = width,
                        .column_tiles = column_tiles,
                        .fault = of(device).fault()};
      launch("embedding_grad_rows", embedding_grad_rows<T>,
             {.grid = static_cast<unsigned>(rows * column_tiles), .block = threads}, p, of(device));
    });
  }};
}

}  // namespace

std::vector<Kernel> embedding_grad() {
  return {{.op = "embedding_grad",
           .name = "embedding_grad_rows",
           .supports = +[](const Signature& s, const Device&) { return is_float(s.in[0].dtype); },
           .prepare = prepare}};
}

}  // namespace ebb::ops::cuda
