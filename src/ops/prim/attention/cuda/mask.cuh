// Masks and additive biases of attention and its gradient, for the CUDA kernels.
#pragma once

#include <climits>

#include "ops/prim/attention/cuda/head.cuh"

namespace ebb::ops::cuda {

struct MaskParams {
  const void* bias = nullptr;                  // [N|1,A|1,T|1,S]; null: none
  const int64_t* key_lengths = nullptr;        // [N]; null: all keys
  int64_t bias_n = 0, bias_a = 0, bias_t = 0;  // strides in elements; 0: broadcast
  DType bias_dtype = DType::f32;
  bool pairs = false;          // biases at even positions may be loaded as pairs
  int diagonal = INT_MAX / 2;  // query t attends to keys below t + diagonal
};

// A bias as it is added to a score: -infinity masks a key, finite values are clamped to -1e30.
__device__ __forceinline__ float bias_value(float b) {
  return b < -1e30f && b != -INFINITY ? -1e30f : b;
}

// The mask of one head.
struct HeadMask {
  const MaskParams& p;
  int64_t bias_at;  // of query 0 and key 0
  int count;        // keys of the sample
  float per_scale;  // 1 / scale

  __device__ __forceinline__ HeadMask(const HeadSizes& z, const MaskParams& params, int head)
      : p(params),
        bias_at(head / z.a * params.bias_n + head % z.a * params.bias_a),
        count(z.s),
        per_scale(1 / z.scale) {
    if (p.key_lengths != nullptr)
      count = static_cast<int>(
          ::min(::max(p.key_lengths[head / z.a], int64_t{0}), static_cast<int64_t>(z.s)));
  }
  // Query t attends to the keys below this; may be negative.
  __device__ __forceinline__ int key_limit(int t) const { return ::min(count, t + p.diagonal); }
  // The first query that attends to key s, if the sample has that key.
  __device__ __forceinline__ int first_query(int s) const { return ::max(s - p.diagonal + 1, 0); }
  // What the bias adds to a score that the scale has been applied to.
  __device__ __forceinline__ float bias(int t, int s) const {
    if (p.bias == nullptr) return 0;
    return bias_value(element(p.bias, p.bias_dtype, bias_at + t * p.bias_t + s));
  }
};

// The block of scores of a Masked kernel: its first key and first query.
struct BlockMask {
  const HeadMask& head;
  int key, query, queries;  // queries: of the head
};

// ---- accumulators of m16n8: rows 8 h + lane / 4 of 16, columns 8 n + lane % 4 * 2 + i of 8 N
// -----

// Two consecutive biases of a row, divided by the scale; 0 from column `count` on.
template <class B, bool Pairs>
__device__ __forceinline__ float2 bias_pair(const HeadMask& mask, const B* row, int key) {
  float2 b{0, 0};
  if constexpr (Pairs) {
    if (key < mask.count) {
      const auto two = *reinterpret_cast<const ebb::cuda::Vec<B, 2>*>(row + key);
      b = {ebb::cuda::to_float(two.v[0]), ebb::cuda::to_float(two.v[1])};
    }
  } else {
    if (key < mask.count) b.x = ebb::cuda::to_float(row[key]);
    if (key + 1 < mask.count) b.y = ebb::cuda::to_float(row[key + 1]);
  }
  return {bias_value(b.x) * mask.per_scale, bias_value(b.y) * mask.per_scale};
}

template <class B, bool Pairs, int M, int N>
__device__ __forceinline__ void read_bias(float (&s)[M][N][4], const HeadMask& mask, int queries,
                                          int row, int key, int lane) {
  const B* const head = static_cast<const B*>(mask.p.bias) + mask.bias_at;
  const int column = key + lane % 4 * 2;
  if (mask.p.bias_t == 0) {
#pragma unroll
    for (int n = 0; n < N; ++n) {
      const float2 b = bias_pair<B, Pairs>(mask, head, column + 8 * n);
#pragma unroll
      for (int m = 0; m < M; ++m) s[m][n][0] = s[m][n][2] = b.x, s[m][n][1] = s[m][n][3] = b.y;
    }
    return;
  }
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int t = ::min(row + 16 * m + 8 * h + lane / 4, queries - 1);
#pragma unroll
      for (int n = 0; n < N; ++n) {
        const float2 b = bias_pair<B, Pairs>(mask, head + t * mask.p.bias_t, column + 8 * n);
        s[m][n][2 * h] = b.x, s[m][n][2 * h + 1] = b.y;
      }
    }
}

// Initialises scores (queries from `row`, keys from `key`) with bias / scale, or 0. The bias is of
// T or f32.
template <class T, int M, int N>
__device__ __forceinline__ void init_scores(float (&s)[M][N][4], const HeadMask& mask, int queries,
                                            int row, int key, int lane) {
  if (mask.p.bias == nullptr) {
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int n = 0; n < N; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) s[m][n][i] = 0;
  } else if (mask.p.bias_dtype == DType::f32) {
    if (mask.p.pairs)
      read_bias<float, true>(s, mask, queries, row, key, lane);
    else
      read_bias<float, false>(s, mask, queries, row, key, lane);
  } else if (mask.p.pairs) {
    read_bias<T, true>(s, mask, queries, row, key, lane);
  } else {
    read_bias<T, false>(s, mask, queries, row, key, lane);
  }
}

// Sets masked scores to -infinity.
template <int M, int N>
__device__ __forceinline__ void mask_keys(float (&s)[M][N][4], const HeadMask& mask, int row,
                                          int key, int lane) {
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int end = mask.key_limit(row + 16 * m + 8 * h + lane / 4) - key - lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < N; ++n)
#pragma unroll
        for (int i = 0; i < 2; ++i)
          if (8 * n + i >= end) s[m][n][2 * h + i] = -INFINITY;
    }
}

// The same for transposed scores: rows are keys from `key`, columns are queries from `row`.
template <class T, int M, int N>
__device__ __forceinline__ void init_scores_transposed(float (&s)[M][N][4], const HeadMask& mask,
                                                       int queries, int row, int key, int lane) {
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) s[m][n][i] = 0;
  if (mask.p.bias == nullptr) return;
  const bool f32 = mask.p.bias_dtype == DType::f32;
#pragma unroll
  for (int m = 0; m < M; ++m)
#pragma unroll
    for (int n = 0; n < N; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int t = row + 8 * n + lane % 4 * 2 + i % 2;
        const int k = key + 16 * m + i / 2 * 8 + lane / 4;
        if (t >= queries || k >= mask.count) continue;
        const int64_t at = mask.bias_at + t * mask.p.bias_t + k;
        const float b = f32 ? static_cast<const float*>(mask.p.bias)[at]
                            : ebb::cuda::to_float(static_cast<const T*>(mask.p.bias)[at]);
        s[m][n][i] = bias_value(b) * mask.per_scale;
      }
}

template <int M, int N>
__device__ __forceinline__ void mask_keys_transposed(float (&p)[M][N][4], const HeadMask& mask,
                                                     int row, int key, int lane) {
#pragma unroll
  for (int n = 0; n < N; ++n)
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int end = mask.key_limit(row + 8 * n + lane % 4 * 2 + i) - key - lane / 4;
#pragma unroll
      for (int m = 0; m < M; ++m)
#pragma unroll
        for (int h = 0; h < 2; ++h)
          if (16 * m + 8 * h >= end) p[m][n][2 * h + i] = 0;
    }
}

}  // namespace ebb::ops::cuda
