// Problem sizes and rows of a head, shared by the CUDA kernels of attention and its gradient.
#pragma once

#include "backend/cuda/attention/tiles.cuh"
#include "core/dtype.h"

namespace ebb::ops::cuda {

// Where a tensor [N,rows,heads,width] lies from its first element on: from sample to sample, row to
// row and head to head, in elements. Columns lie side by side.
struct HeadStrides {
  int64_t n, t, a;
};

// Problem sizes. q is [N,t,a,width], k and v are [N,s,a / group,width]; a head is one of N * a.
struct HeadSizes {
  int64_t heads;
  HeadStrides q, k, v, o;
  int a, t, s, width;
  float scale;       // of the scores
  float scale_log2;  // the same times log2(e)
  int group;         // query heads that share a head of k and v
};

// The rows of head `head` in a tensor with `count` rows per sample that lies so.
template <class T>
__device__ __forceinline__ ebb::cuda::Rows<T> rows_of(const HeadSizes& z, const HeadStrides& lies,
                                                      const void* tensor, int head, int count) {
  const int64_t at = head / z.a * lies.n + head % z.a * lies.a;
  return {static_cast<const T*>(tensor) + at, lies.t, count, z.width};
}

// The head of k and v that a query head reads, within its sample.
__device__ __forceinline__ int key_head(const HeadSizes& z, int head) {
  return head % z.a / z.group;
}

// Of k, v or a gradient of theirs, as query head `head` reads them.
template <class T>
__device__ __forceinline__ ebb::cuda::Rows<T> key_rows_of(const HeadSizes& z,
                                                          const HeadStrides& lies,
                                                          const void* tensor, int head) {
  const int64_t at = head / z.a * lies.n + key_head(z, head) * lies.a;
  return {static_cast<const T*>(tensor) + at, lies.t, z.s, z.width};
}

// Element `i` of a tensor of floats.
__device__ __forceinline__ float element(const void* tensor, DType dtype, int64_t i) {
  if (dtype == DType::bf16)
    return ebb::cuda::to_float(static_cast<const __nv_bfloat16*>(tensor)[i]);
  if (dtype == DType::f16) return ebb::cuda::to_float(static_cast<const __half*>(tensor)[i]);
  return static_cast<const float*>(tensor)[i];
}

}  // namespace ebb::ops::cuda
