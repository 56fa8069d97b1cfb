#include "backend/cuda/elements.cuh"
#include "backend/cuda/fault.cuh"
#include "backend/cuda/launch.h"
#include "ir/kernel.h"
#include "ops/prim/embedding_grad/op.h"

namespace ebb::ops::cuda {
namespace {

using namespace ebb::cuda;

constexpr int threads = 128, columns_each = 4, columns = threads * columns_each;

template <class T>
struct Params {
  const T* dy;
  const int64_t* ids;
  float* out;
  int64_t rows, count, width, parts;  // parts of `columns` columns a row
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

// out[r, :] = sum of dy[i, :] over the i with ids[i] = r.
// grid: one block for 512 columns of a row.  sums: f32, in the order of the ids.  deterministic.
template <class T>
__global__ __launch_bounds__(threads) void embedding_grad_rows(
    const __grid_constant__ Params<T> p) {
  begin();
  __shared__ int found[threads];
  const int64_t row = blockIdx.x / p.parts, part = blockIdx.x % p.parts;
  const int64_t column = part * columns + threadIdx.x;
  float sum[columns_each] = {};
  for (int64_t first = 0; first < p.count; first += threads) {
    if (blockIdx.x == 0 && first + threadIdx.x < p.count) {
      const int64_t id = p.ids[first + threadIdx.x];
      if (id < 0 || id >= p.rows) report(p.fault, id_out_of_range, id, p.rows);
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
  const int64_t count = s.in[1].shape.numel(), parts = (width + columns - 1) / columns;
  return {.run = [=, dtype = s.in[0].dtype, &device](const Call& c) {
    visit_float(dtype, [&](auto zero) {
      using T = decltype(zero);
      const Params<T> p{.dy = static_cast<const T*>(c.in[0]),
                        .ids = static_cast<const int64_t*>(c.in[1]),
                        .out = static_cast<float*>(c.out[0]),
                        .rows = rows,
                        .count = count,
                        .width = width,
                        .parts = parts,
                        .fault = of(device).fault()};
      launch("embedding_grad_rows", embedding_grad_rows<T>,
             {.grid = static_cast<unsigned>(rows * parts), .block = threads}, p, of(device));
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
