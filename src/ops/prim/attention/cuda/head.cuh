// Problem sizes and rows of a head, shared by the CUDA kernels of attention and its gradient.
#pragma once

#include "backend/cuda/attention/tiles.cuh"
#include "core/dtype.h"

namespace ebb::ops::cuda {

// Problem sizes. q is [N,t,a,width], k and v are [N,s,a / group,width]; a head is one of N * a.
struct HeadSizes {
  int64_t heads;
  int64_t row_stride, out_row_stride;  // row strides of q and of o, in elements
  int a, t, s, width;
  float scale;             // of the scores
  float scale_log2;        // the same times log2(e)
  int64_t key_row_stride;  // row stride of k and v, in elements
  int group;               // query heads that share a head of k and v
};

// The rows of head `head` in a tensor with `count` rows per sample and row stride `stride`.
template <class T>
__device__ __forceinline__ ebb::cuda::Rows<T> rows_of(const HeadSizes& z, const void* tensor,
                                                      int head, int count, int64_t stride) {
  const int64_t at = head / z.a * (count * stride) + int64_t{head % z.a} * z.width;
  return {static_cast<const T*>(tensor) + at, stride, count, z.width};
}

// Of q, or without groups of k, v or a gradient of theirs.
template <class T>
__device__ __forceinline__ ebb::cuda::Rows<T> rows_of(const HeadSizes& z, const void* tensor,
                                                      int head, int count) {
  return rows_of<T>(z, tensor, head, count, z.row_stride);
}

// The head of k and v that a query head reads, within its sample.
__device__ __forceinline__ int key_head(const HeadSizes& z, int head) {
  return head % z.a / z.group;
}

// Of k or v, as query head `head` reads them.
template <class T>
__device__ __forceinline__ ebb::cuda::Rows<T> key_rows_of(const HeadSizes& z, const void* tensor,
                                                          int head) {
  const int64_t at = head / z.a * (z.s * z.key_row_stride) + int64_t{key_head(z, head)} * z.width;
  return {static_cast<const T*>(tensor) + at, z.key_row_stride, z.s, z.width};
}

// Of o or its gradient.
template <class T>
__device__ __forceinline__ ebb::cuda::Rows<T> out_rows_of(const HeadSizes& z, const void* tensor,
                                                          int head) {
  return rows_of<T>(z, tensor, head, z.t, z.out_row_stride);
}

// Element `i` of a tensor of floats.
__device__ __forceinline__ float element(const void* tensor, DType dtype, int64_t i) {
  if (dtype == DType::bf16)
    return ebb::cuda::to_float(static_cast<const __nv_bfloat16*>(tensor)[i]);
  if (dtype == DType::f16) return ebb::cuda::to_float(static_cast<const __half*>(tensor)[i]);
  return static_cast<const float*>(tensor)[i];
}

}  // namespace ebb::ops::cuda
