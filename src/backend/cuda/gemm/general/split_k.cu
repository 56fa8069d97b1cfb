// Second stages of GEMMs: split-K and column reductions, in a fixed order.
#include <algorithm>

#include "backend/cuda/device/launch.h"
#include "backend/cuda/gemm/general/common.cuh"
#include "backend/cuda/gemm/general/plan.h"

namespace ebb::cuda {
namespace {

constexpr int lanes = 32, rows_at_once = 8;

__device__ void store_float(void* data, DType t, int64_t i, float v) {
  switch (t) {
    case DType::bf16: static_cast<__nv_bfloat16*>(data)[i] = __float2bfloat16_rn(v); break;
    case DType::f16: static_cast<__half*>(data)[i] = __float2half_rn(v); break;
    default: static_cast<float*>(data)[i] = v;
  }
}

// Epilogue of an element, after the sum of its partials.
__device__ float bias_and_residual(const SplitKReduction& p, int64_t at) {
  float v = p.bias ? load_float(p.bias, p.bias_dtype, at % p.n) : 0.f;
  if (p.residual)
    v += load_float(p.residual, p.residual_dtype,
                    p.residual_rows == 1 ? at : at / p.n / p.residual_rows * p.n + at % p.n);
  return v;
}

// grid: a thread block per 32 x Count elements; its up to 8 rows of threads are interleaved over
// the splits. needs: elements % Count == 0.  deterministic: yes.
template <int Count>
__global__ void __launch_bounds__(lanes* rows_at_once)
    reduce_split_k_kernel(const __grid_constant__ SplitKReduction p) {
  begin();
  __shared__ Vec<float, Count> sums[rows_at_once][lanes];
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * lanes + threadIdx.x) * Count;
  Vec<float, Count> sum = {};
  if (at < p.elements)
#pragma unroll 4
    for (int64_t i = threadIdx.y; i < p.count; i += blockDim.y) {
      const auto v = *reinterpret_cast<const Vec<float, Count>*>(p.partials + i * p.elements + at);
#pragma unroll
      for (int e = 0; e < Count; ++e) sum.v[e] += v.v[e];
    }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || at >= p.elements) return;
#pragma unroll
  for (int e = 0; e < Count; ++e) {
    float total = bias_and_residual(p, at + e);
    for (unsigned i = 0; i < blockDim.y; ++i) total += sums[i][threadIdx.x].v[e];
    store_float(p.out, p.dtype, at + e, total);
  }
}

// The same for many elements: a thread sums all partials of 4.
__global__ void __launch_bounds__(256)
    reduce_split_k_flat_kernel(const __grid_constant__ SplitKReduction p) {
  begin();
  using Four = Vec<float, 4>;
  const int64_t at = (int64_t{blockIdx.x} * 256 + threadIdx.x) * 4;
  if (at >= p.elements) return;
  Four sum = *reinterpret_cast<const Four*>(p.partials + at);
#pragma unroll 4
  for (int64_t i = 1; i < p.count; ++i) {
    const auto v = *reinterpret_cast<const Four*>(p.partials + i * p.elements + at);
#pragma unroll
    for (int e = 0; e < 4; ++e) sum.v[e] += v.v[e];
  }
  if (p.bias != nullptr || p.residual != nullptr)
#pragma unroll
    for (int e = 0; e < 4; ++e) sum.v[e] += bias_and_residual(p, at + e);
  if (p.dtype == DType::f32 && p.aligned) {
    *reinterpret_cast<Four*>(static_cast<float*>(p.out) + at) = sum;
    return;
  }
#pragma unroll
  for (int e = 0; e < 4; ++e) store_float(p.out, p.dtype, at + e, sum.v[e]);
}

// Column sums of x; a thread block sums `rows_each` rows.
struct ColumnParams {
  const void* x;
  float* partials;
  DType dtype;
  bool vector;  // 16-byte vectors are aligned
  int64_t rows, cols, rows_each;
};

// grid: (columns / (32 * Count), partials).  Each row of threads sums every 8th row.
template <class T, int Count>
__global__ void __launch_bounds__(lanes* rows_at_once)
    column_sums_kernel(const __grid_constant__ ColumnParams p) {
  begin();
  __shared__ Vec<float, Count> sums[rows_at_once][lanes];
  const int64_t col = (static_cast<int64_t>(blockIdx.x) * lanes + threadIdx.x) * Count;
  const int64_t first = blockIdx.y * p.rows_each;
  const int64_t last = first + p.rows_each < p.rows ? first + p.rows_each : p.rows;
  Vec<float, Count> sum = {};
  if (col < p.cols)
#pragma unroll 4
    for (int64_t row = first + threadIdx.y; row < last; row += rows_at_once) {
      const auto v =
          *reinterpret_cast<const Vec<T, Count>*>(static_cast<const T*>(p.x) + row * p.cols + col);
#pragma unroll
      for (int e = 0; e < Count; ++e) sum.v[e] += to_float(v.v[e]);
    }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || col >= p.cols) return;
#pragma unroll
  for (int e = 0; e < Count; ++e) {
    float total = 0.f;
#pragma unroll
    for (int i = 0; i < rows_at_once; ++i) total += sums[i][threadIdx.x].v[e];
    p.partials[blockIdx.y * p.cols + col + e] = total;
  }
}

template <class T>
void launch_column_sums(const ColumnParams& p, int64_t partials, CudaDevice& device) {
  constexpr int vector_size = 16 / sizeof(T);
  const auto go = [&](auto kernel, int count) {
    const unsigned blocks = blocks_for(p.cols, lanes * count);
    launch("column_sums", kernel,
           {.grid = {blocks, static_cast<unsigned>(partials)}, .block = {lanes, rows_at_once}}, p,
           device);
  };
  if (p.vector)
    go(column_sums_kernel<T, vector_size>, vector_size);
  else
    go(column_sums_kernel<T, 1>, 1);
}

}  // namespace

void reduce_split_k(const SplitKReduction& p, CudaDevice& device) {
  const auto rows = static_cast<unsigned>(std::clamp<int64_t>(p.count, 1, rows_at_once));
  const dim3 block = {lanes, rows};
  const int64_t filling = int64_t{device.sm_count()} * 512 * 4;
  if (p.elements % 4 == 0 && p.elements >= filling)
    launch("reduce_split_k", reduce_split_k_flat_kernel,
           {.grid = blocks_for(p.elements, 256 * 4), .block = 256}, p, device);
  else if (p.elements % 4 == 0)
    launch("reduce_split_k", reduce_split_k_kernel<4>,
           {.grid = blocks_for(p.elements, lanes * 4), .block = block}, p, device);
  else
    launch("reduce_split_k", reduce_split_k_kernel<1>,
           {.grid = blocks_for(p.elements, lanes), .block = block}, p, device);
}

int64_t column_sum_partials(int64_t rows, int64_t cols, const CudaDevice& device) {
  constexpr int64_t rows_at_least = 64, most = 256, blocks_each = 4;
  const int64_t across = blocks_for(cols, lanes * 8);
  const int64_t wanted = device.sm_count() * blocks_each / std::max<int64_t>(across, 1);
  return std::clamp<int64_t>(std::min(rows / rows_at_least, wanted), 1, most);
}

void column_sums(const ColumnSums& s, CudaDevice& device) {
  const int64_t partials = column_sum_partials(s.rows, s.cols, device);
  const ColumnParams p{.x = s.x,
                       .partials = s.workspace,
                       .dtype = s.dtype,
                       .vector = s.aligned && s.cols * size_of(s.dtype) % 16 == 0,
                       .rows = s.rows,
                       .cols = s.cols,
                       .rows_each = (s.rows + partials - 1) / partials};
  switch (s.dtype) {
    case DType::bf16: launch_column_sums<__nv_bfloat16>(p, partials, device); break;
    case DType::f16: launch_column_sums<__half>(p, partials, device); break;
    default: launch_column_sums<float>(p, partials, device);
  }
  reduce_split_k({.partials = s.workspace,
                  .count = partials,
                  .elements = s.cols,
                  .out = s.out,
                  .n = s.cols,
                  .aligned = s.aligned},
                 device);
}

}  // namespace ebb::cuda
