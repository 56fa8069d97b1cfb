// Shared by the tensor-core kernels of attention_grad: the preprocess kernel, and the steps of a
// key or query block.
#pragma once

#include "ops/prim/attention/cuda/mask.cuh"

namespace ebb::ops::cuda {

using namespace ebb::cuda;

// lse_log2 and delta hold `pitch` floats per head (a multiple of 64), one per query: lse in units
// of log 2, and sum(o do) - dlse. Beyond the last query: infinity and 0.
struct GradParams {
  HeadSizes z;
  const void *q, *k, *v, *o, *lse, *dout, *dlse;  // dlse: may be null
  void *dq, *dk, *dv;
  float *lse_log2, *delta;
  int64_t pitch;
  DType lse_dtype, dlse_dtype;
  int key_tiles,
      query_tiles;  // thread blocks per head: for dk and dv; for dq (attention_grad_ring)
  MaskParams mask;  // of kernels that are Masked; of whole heads its diagonal alone
  HeadStrides dout_lies, dq_lies, dk_lies, dv_lies;
};

// Rows of do of a head.
template <class T>
__device__ __forceinline__ Rows<T> dout_rows_of(const GradParams& p, int head) {
  return rows_of<T>(p.z, p.dout_lies, p.dout, head, p.z.t);
}

constexpr int kRowLanes = 8;  // threads per row of the preprocess kernel
constexpr int kRowThreads = 256;

// lse_log2 and delta of query t of a head, from the partial sums of o do of kRowLanes threads.
__device__ __forceinline__ void store_row_stats(const GradParams& p, int head, int t, float sum) {
#pragma unroll
  for (int offset = 1; offset < kRowLanes; offset *= 2) sum += __shfl_xor_sync(~0u, sum, offset);
  if (threadIdx.x % kRowLanes != 0 || head >= p.z.heads) return;
  float lse_log2 = INFINITY;
  if (t < p.z.t) {
    const int64_t at = int64_t{head} * p.z.t + t;
    lse_log2 = element(p.lse, p.lse_dtype, at) * kLog2e;
    if (p.dlse != nullptr) sum -= element(p.dlse, p.dlse_dtype, at);
  }
  p.lse_log2[head * p.pitch + t] = lse_log2;
  p.delta[head * p.pitch + t] = sum;
}

// lse_log2 and delta from o, do, lse and dlse; vector loads of V elements.
// grid: covers heads * pitch rows.  sums: f32.  deterministic: yes.
template <class T, int V>
__global__ __launch_bounds__(kRowThreads) void attention_grad_preprocess(
    const __grid_constant__ GradParams p) {
  begin();
  const int64_t i = (int64_t{blockIdx.x} * kRowThreads + threadIdx.x) / kRowLanes;
  const int head = static_cast<int>(i / p.pitch);
  const int t = static_cast<int>(i % p.pitch), lane = threadIdx.x % kRowLanes;
  float sum = 0;
  if (head < p.z.heads && t < p.z.t) {
    const auto o = rows_of<T>(p.z, p.z.o, p.o, head, p.z.t), d = dout_rows_of<T>(p, head);
    const int64_t o_at = t * o.row_stride, d_at = t * d.row_stride;
    for (int c = lane * V; c < p.z.width; c += kRowLanes * V) {
      const auto x = *reinterpret_cast<const Vec<T, V>*>(o.first + o_at + c);
      const auto y = *reinterpret_cast<const Vec<T, V>*>(d.first + d_at + c);
#pragma unroll
      for (int j = 0; j < V; ++j) sum = fmaf(to_float(x.v[j]), to_float(y.v[j]), sum);
    }
  }
  store_row_stats(p, head, t, sum);
}

// lse_log2 and delta of `queries` queries of a head, four threads per row.
template <class T, int Threads>
__device__ __forceinline__ void compute_row_stats(const GradParams& p, float* lse_log2s,
                                                  float* deltas, int head, int queries) {
  const auto o = rows_of<T>(p.z, p.z.o, p.o, head, p.z.t), d = dout_rows_of<T>(p, head);
#pragma unroll 1
  for (int t = threadIdx.x / 4; t < queries; t += Threads / 4) {
    float sum = 0;
    if (t < p.z.t)
      for (int c = threadIdx.x % 4 * 8; c < p.z.width; c += 32) {
        const auto x = *reinterpret_cast<const Vec<T, 8>*>(o.first + t * o.row_stride + c);
        const auto y = *reinterpret_cast<const Vec<T, 8>*>(d.first + t * d.row_stride + c);
#pragma unroll
        for (int j = 0; j < 8; ++j) sum = fmaf(to_float(x.v[j]), to_float(y.v[j]), sum);
      }
    sum = quad_sum(sum);
    if (threadIdx.x % 4 != 0) continue;
    float lse_log2 = INFINITY;
    if (t < p.z.t) {
      const int64_t i = int64_t{head} * p.z.t + t;
      lse_log2 = element(p.lse, p.lse_dtype, i) * kLog2e;
      if (p.dlse != nullptr) sum -= element(p.dlse, p.dlse_dtype, i);
    }
    lse_log2s[t] = lse_log2;
    deltas[t] = sum;
  }
}

// lse_log2 or delta of 8 N queries in shared memory: those of this thread's columns of scores^T.
template <int N>
__device__ __forceinline__ void load_row_stats(float2 (&x)[N], const float* stats) {
  const auto* const from = reinterpret_cast<const float2*>(stats) + threadIdx.x % 4;
#pragma unroll
  for (int n = 0; n < N; ++n) x[n] = from[4 * n];
}

// p^T = exp(scores) in place, for a warpgroup's 64 keys and 8 N queries; keys from `count` on are
// masked.
template <int N>
__device__ __forceinline__ void exp_scores_transposed(float (&s)[N][4], const float2 (&lse_log2)[N],
                                                      float scale, int count) {
  const int lane = threadIdx.x % 32, key = threadIdx.x % 128 / 32 * 16 + lane / 4;
#pragma unroll
  for (int n = 0; n < N; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      s[n][i] = fast_exp2(fmaf(s[n][i], scale, -(i % 2 == 0 ? lse_log2[n].x : lse_log2[n].y)));
  if (count >= 64) return;
#pragma unroll
  for (int n = 0; n < N; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (key + i / 2 * 8 >= count) s[n][i] = 0;
}

// p^T of 64 keys from `key` on becomes 0 for the queries that do not see them yet: a block of
// queries of which the first sees the keys up to `last`, and each one more than the query before.
template <int N>
__device__ __forceinline__ void mask_later_keys(float (&s)[N][4], int key, int last) {
  if (last >= key + 63) return;
  const int lane = threadIdx.x % 32, row = threadIdx.x % 128 / 32 * 16 + lane / 4;
  const int later = key + row - last - lane % 4 * 2;  // at row 0 and column 0 of this thread
#pragma unroll
  for (int n = 0; n < N; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (later + i / 2 * 8 > 8 * n + i % 2) s[n][i] = 0;
}

// ds^T = p^T (dp^T - delta), packed like p^T.
template <class T, int N>
__device__ __forceinline__ void differentiate(uint32_t (&ds)[N][4], const uint32_t (&weights)[N][4],
                                              const float (&dp)[2 * N][4],
                                              const float2 (&delta)[2 * N]) {
#pragma unroll
  for (int n = 0; n < 2 * N; ++n) {
    const float2 by = delta[n];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float2 p = unpack<T>(weights[n / 2][n % 2 * 2 + h]);
      ds[n / 2][n % 2 * 2 + h] =
          pack<T>(p.x * (dp[n][2 * h] - by.x), p.y * (dp[n][2 * h + 1] - by.y));
    }
  }
}

// A block of 8 N queries in shared memory.
struct QueryBlock {
  uint32_t q, dout;
  const float *lse_log2, *delta;  // in shared memory
};

// Keys of a warp: tiles in shared memory, of which `count` rows exist.
struct WarpKeys {
  uint32_t k, v;
  int count;
};

// dv += p^T do and dk += ds^T q for 16 M keys of a warp and 8 N queries; ds^T stays in `ds`. Scores
// are masked if `mask` is given.
template <class T, int M, int N, int D, bool Masked = false>
__device__ __forceinline__ void add_queries(float (&dk)[M][D / 8][4], float (&dv)[M][D / 8][4],
                                            float (&ds)[M][N][4], const WarpKeys& keys,
                                            const QueryBlock& b, float scale, int lane,
                                            const BlockMask* mask = nullptr) {
  float s[M][N][4];
  if constexpr (Masked)
    init_scores_transposed<T>(s, mask->head, mask->queries, mask->query, mask->key, lane);
  else
    clear(s);
  add_gemm_tiles<T, M, N, D>(s, keys.k, b.q, lane);
  const int column = lane % 4 * 2;
#pragma unroll
  for (int n = 0; n < N; ++n) {
    const float2 lse_log2 = *reinterpret_cast<const float2*>(b.lse_log2 + 8 * n + column);
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        s[m][n][i] = fast_exp2(fmaf(s[m][n][i], scale, -(i % 2 == 0 ? lse_log2.x : lse_log2.y)));
  }
  if constexpr (Masked) {
    mask_keys_transposed(s, mask->head, mask->query, mask->key, lane);
  } else if (keys.count < 16 * M)
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int n = 0; n < N; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          if (16 * m + i / 2 * 8 + lane / 4 >= keys.count) s[m][n][i] = 0;
  add_weighted_rows<T, M, N, D>(dv, s, b.dout, lane);
  gemm_tiles<T, M, N, D>(ds, keys.v, b.dout, lane);
#pragma unroll
  for (int n = 0; n < N; ++n) {
    const float2 delta = *reinterpret_cast<const float2*>(b.delta + 8 * n + column);
#pragma unroll
    for (int m = 0; m < M; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        ds[m][n][i] = s[m][n][i] * (ds[m][n][i] - (i % 2 == 0 ? delta.x : delta.y));
  }
  add_weighted_rows<T, M, N, D>(dk, ds, b.q, lane);
}

// Writes rows, scaled.
template <class T, int M, int D>
__device__ __forceinline__ void write_scaled(const Rows<T>& to, int begin,
                                             const float (&c)[M][D / 8][4], float factor,
                                             int lane) {
  float factors[M][2];
#pragma unroll
  for (int m = 0; m < M; ++m) factors[m][0] = factors[m][1] = factor;
  write_rows<T, M, D>(to, begin, c, factors, lane);
}

}  // namespace ebb::ops::cuda
