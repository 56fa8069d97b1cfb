// Shared by the GEMM kernels of tensor_cores.cuh and fma.cuh: parameters, rasterisation, loads
// of any float dtype, and the epilogue.
#pragma once

#include "backend/cuda/gemm/general/plan.h"
#include "backend/cuda/kit/prologue.cuh"

namespace ebb::cuda {

struct GemmOutput {
  void* data = nullptr;  // rows of n elements
  const void *bias = nullptr, *residual = nullptr;
  DType dtype = DType::f32, bias_dtype = DType::f32, residual_dtype = DType::f32;
  int n = 0, residual_rows = 1;                  // result rows per residual row
  bool vector = false, residual_vector = false;  // 16-byte vectors of rows are aligned and full
};

template <class A, class B>
struct GemmParams {
  A a;
  B b;
  const void *a_data = nullptr, *b_data = nullptr;
  DType a_dtype = DType::f32, b_dtype = DType::f32;
  bool a_vector = false, b_vector = false;  // 16-byte vectors along `inner` are aligned and full
  int m_tiles = 1, n_tiles = 1;
  int splits = 1;  // split-K factor; more than 1: f32 partials, consecutive in out.data
  int64_t partial_elements = 0;  // of one partial
  GemmOutput out;
};

__device__ __forceinline__ float load_float(const void* data, DType t, int64_t i) {
  switch (t) {
    case DType::bf16: return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[i]);
    case DType::f16: return __half2float(static_cast<const __half*>(data)[i]);
    default: return static_cast<const float*>(data)[i];
  }
}

// ---- rasterisation ---------------------------------------------------------------------------

struct BlockTile {
  int m_tile, n_tile, split, z;
};

// Thread block b of a one-dimensional grid. Tiles are grouped (rasterisation swizzle): those that
// run at the same time form squares rather than strips, for L2 reuse.
__device__ __forceinline__ BlockTile block_tile(unsigned block, int m_tiles, int n_tiles,
                                                int splits) {
  constexpr unsigned side = 8;
  const unsigned tiles = static_cast<unsigned>(m_tiles) * static_cast<unsigned>(n_tiles);
  const unsigned member = block / tiles, tile = block - member * tiles;
  const unsigned group = side * static_cast<unsigned>(n_tiles);
  const unsigned first = tile / group * side, within = tile % group;
  const unsigned left = static_cast<unsigned>(m_tiles) - first;
  const unsigned rows = left < side ? left : side;
  return {static_cast<int>(first + within % rows), static_cast<int>(within / rows),
          static_cast<int>(member % static_cast<unsigned>(splits)),
          static_cast<int>(member / static_cast<unsigned>(splits))};
}

// The steps of `depth` along k of a split: [first, last).
struct Steps {
  int first, last;
};
__device__ __forceinline__ Steps steps_of(int k, int depth, int split, int splits) {
  const int steps = (k + depth - 1) / depth, each = (steps + splits - 1) / splits;
  const int first = split * each;
  return {first < steps ? first : steps, first + each < steps ? first + each : steps};
}

// ---- the epilogue -----------------------------------------------------------------------------

template <class T, int Count>
__device__ __forceinline__ void add_neighbours(const GemmOutput& out, int64_t at, int col,
                                               float (&v)[Count]) {
  constexpr int vector_size = 16 / sizeof(T) < Count ? 16 / sizeof(T) : Count;
  const T* from = static_cast<const T*>(out.residual) + at;
  if (out.residual_vector && col + Count <= out.n) {
#pragma unroll
    for (int i = 0; i < Count; i += vector_size) {
      const auto packed = *reinterpret_cast<const Vec<T, vector_size>*>(from + i);
#pragma unroll
      for (int e = 0; e < vector_size; ++e) v[i + e] += to_float(packed.v[e]);
    }
  } else {
#pragma unroll
    for (int e = 0; e < Count; ++e)
      if (col + e < out.n) v[e] += to_float(from[e]);
  }
}

// Adds the residual to `Count` consecutive columns of a row, from column `col`.
template <int Count>
__device__ __forceinline__ void add_residual(const GemmOutput& out, int64_t row, int col,
                                             float (&v)[Count]) {
  if (out.residual == nullptr) return;
  const int64_t at = row / out.residual_rows * out.n + col;
  switch (out.residual_dtype) {
    case DType::bf16: return add_neighbours<__nv_bfloat16>(out, at, col, v);
    case DType::f16: return add_neighbours<__half>(out, at, col, v);
    default: return add_neighbours<float>(out, at, col, v);
  }
}

// Stores `Count` consecutive columns of a row, from column `col`.
template <class T, int Count>
__device__ __forceinline__ void store_neighbours(const GemmOutput& out, int64_t row, int col,
                                                 const float (&v)[Count]) {
  constexpr int vector_size = 16 / sizeof(T) < Count ? 16 / sizeof(T) : Count;
  T* to = static_cast<T*>(out.data) + row * out.n + col;
  if (out.vector && col + Count <= out.n) {
#pragma unroll
    for (int i = 0; i < Count; i += vector_size) {
      Vec<T, vector_size> packed;
#pragma unroll
      for (int e = 0; e < vector_size; ++e) packed.v[e] = from_float<T>(v[i + e]);
      *reinterpret_cast<Vec<T, vector_size>*>(to + i) = packed;
    }
  } else {
#pragma unroll
    for (int e = 0; e < Count; ++e)
      if (col + e < out.n) to[e] = from_float<T>(v[e]);
  }
}

template <int Count>
__device__ __forceinline__ void store_row(const GemmOutput& out, int64_t row, int col,
                                          float (&v)[Count]) {
  add_residual(out, row, col, v);
  switch (out.dtype) {
    case DType::bf16: return store_neighbours<__nv_bfloat16>(out, row, col, v);
    case DType::f16: return store_neighbours<__half>(out, row, col, v);
    default: return store_neighbours<float>(out, row, col, v);
  }
}

// The bias of `Count` columns; zeros without one.
template <int Count>
__device__ __forceinline__ void load_bias(const GemmOutput& out, int col, float (&v)[Count]) {
#pragma unroll
  for (int e = 0; e < Count; ++e)
    v[e] = out.bias && col + e < out.n ? load_float(out.bias, out.bias_dtype, col + e) : 0.f;
}

// Where a split stores, or the GEMM if there is one split.
template <class P>
__device__ __forceinline__ GemmOutput output_of(const P& p, int split) {
  GemmOutput out = p.out;
  if (p.splits > 1) out.data = static_cast<float*>(out.data) + split * p.partial_elements;
  return out;
}

}  // namespace ebb::cuda
