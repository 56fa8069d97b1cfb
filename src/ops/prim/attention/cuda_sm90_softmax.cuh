// attention on wgmma: what a warpgroup computes of 64 queries and a block of keys. Scores are in
// units of log 2.
#pragma once

#include <cfloat>

#include "backend/cuda/attention_wgmma.cuh"
#include "backend/cuda/wgmma_wide.cuh"
#include "ops/prim/attention/cuda_forward.cuh"

namespace ebb::ops::cuda {

// ---- weights -----------------------------------------------------------------------------------

// Weights are 2^(scale s - highest), where `highest` comes from a tile's first block of scores and
// then stays: to look for the highest of every block takes time that nothing hides. A row whose
// sum of weights passes this limit, before which no weight has reached the end of its type, is
// computed again in the end by `recompute_rows_online`.
template <class T>
constexpr float kLargestRowSum = 0x1p40f;
template <>
inline constexpr float kLargestRowSum<__half> = 0x1p15f;

// Of a thread's two rows.
struct OnlineSoftmax {
  float highest[2], sum[2];  // sum: of this thread's columns
};

// Scores of keys from `count` on become minus infinity.
template <int N>
__device__ __forceinline__ void cut_scores(float (&s)[N][4], int count, int lane) {
  count -= lane % 4 * 2;
#pragma unroll
  for (int n = 0; n < N; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (8 * n + i % 2 >= count) s[n][i] = -INFINITY;
}

// Which keys a warp's rows see: row i those below of(i).
struct RowsSeen {
  int count, first;  // keys of the sample; those of row 0 but for `count`
  __device__ __forceinline__ int of(int row) const { return ::min(count, first + row); }
};

// Scores of keys that a thread's two rows do not see become minus infinity: of this block they see
// `seen`, from the block's first key on.
template <int N>
__device__ __forceinline__ void hide_scores(float (&s)[N][4], const int (&seen)[2], int lane) {
#pragma unroll
  for (int n = 0; n < N; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (8 * n + lane % 4 * 2 + i % 2 >= seen[i / 2]) s[n][i] = -INFINITY;
}

// Rows without a finite score so far take this for their highest one, so that weights are 0.
__device__ __forceinline__ void bound_highest(OnlineSoftmax& r) {
#pragma unroll
  for (int h = 0; h < 2; ++h) r.highest[h] = fmaxf(r.highest[h], -FLT_MAX);
}

// Rows begin with the scores of their first block.
template <int Keys>
__device__ __forceinline__ void begin_rows(OnlineSoftmax& r, const float (&s)[Keys / 8][4],
                                           float scale) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float top[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) top[i] = s[i / 2][2 * h + i % 2];
#pragma unroll
    for (int n = 2; n < Keys / 8; ++n)
#pragma unroll
      for (int i = 0; i < 2; ++i) top[n % 2 * 2 + i] = fmaxf(top[n % 2 * 2 + i], s[n][2 * h + i]);
    const float highest = fmaxf(fmaxf(top[0], top[1]), fmaxf(top[2], top[3]));
    r.highest[h] = row_highest(highest) * scale;
    r.sum[h] = 0;
  }
}

// Weights of a block, packed as the operand of a product.
template <class T, int N>
__device__ __forceinline__ void weigh_block(uint32_t (&w)[N][4], const float (&s)[2 * N][4],
                                            float scale, OnlineSoftmax& r) {
  float part[2][2] = {};
#pragma unroll
  for (int n = 0; n < 2 * N; ++n) {
    float e[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      e[i] = fast_exp2(fmaf(s[n][i], scale, -r.highest[i / 2]));
      part[i / 2][i % 2] += e[i];
    }
    w[n / 2][n % 2 * 2] = pack<T>(e[0], e[1]);
    w[n / 2][n % 2 * 2 + 1] = pack<T>(e[2], e[3]);
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) r.sum[h] += part[h][0] + part[h][1];
}

// The same in the place of the scores.
template <int N>
__device__ __forceinline__ void weigh_scores(float (&s)[N][4], float scale, OnlineSoftmax& r) {
  float part[2][2] = {};
#pragma unroll
  for (int n = 0; n < N; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      s[n][i] = fast_exp2(fmaf(s[n][i], scale, -r.highest[i / 2]));
      part[i / 2][i % 2] += s[n][i];
    }
#pragma unroll
  for (int h = 0; h < 2; ++h) r.sum[h] += part[h][0] + part[h][1];
}

// ---- products ----------------------------------------------------------------------------------

// Heads as they lie in shared memory: pieces of 64 columns, and perhaps a rest of at most 16.
template <int D>
struct Columns {
  static constexpr bool rest = D % 64 > 0 && D % 64 <= 16;
  static constexpr int pieces = rest ? D / 64 : (D + 63) / 64;
  static constexpr int wide = rest ? D / 64 * 64 : D;  // columns that are not the rest
};

// s = q k^T: 64 queries from `q` on in shared memory, `Keys` keys from `k` on.
template <class T, int D, int Keys>
__device__ __forceinline__ void start_scores(float (&s)[Keys / 8][4], uint32_t q, uint32_t k) {
  using C = Columns<D>;
  const uint64_t a = swizzled_operand(q, 0), b = swizzled_operand(k, 0);
#pragma unroll
  for (int i = 0; i < (C::wide + 15) / 16; ++i)
    Wgmma<T, Keys>::template run<0, 0>(s, a + (i / 4 * 64 * 128 + i % 4 * 32) / 16,
                                       b + (i / 4 * Keys * 128 + i % 4 * 32) / 16, i > 0);
  if constexpr (C::rest)
    Wgmma<T, Keys>::template run<0, 0>(s, narrow_operand(q + C::pieces * 64 * 128),
                                       narrow_operand(k + C::pieces * Keys * 128), 1);
}

// o += w v, or o = w v for the `first`.
template <class T, int D, int Keys>
__device__ __forceinline__ void start_values(float (&o)[D / 8][4],
                                             const uint32_t (&w)[Keys / 16][4], uint32_t v,
                                             bool first) {
  using C = Columns<D>;
  const uint64_t b = swizzled_operand(v, Keys * 128);
  const uint64_t rest = narrow_operand(v + C::pieces * Keys * 128);
#pragma unroll
  for (int i = 0; i < Keys / 16; ++i) {
    using Wide = float(&)[C::wide / 8][4];
    Wgmma<T, C::wide>::template run<1>(reinterpret_cast<Wide>(o[0]), w[i], b + i * 16 * 128 / 16,
                                       i > 0 || !first);
    if constexpr (C::rest) {
      using Rest = float(&)[(D - C::wide) / 8][4];
      Wgmma<T, D - C::wide>::template run<1>(reinterpret_cast<Rest>(o[C::wide / 8]), w[i],
                                             rest + i * 16 * 32 / 16, i > 0 || !first);
    }
  }
}

// ---- rows again --------------------------------------------------------------------------------

// Whether any of the `threads` threads of barrier `id` says so.
__device__ __forceinline__ bool any_of_threads(bool mine, int id, int threads) {
  uint32_t any;
  asm volatile(
      "{ .reg .pred p, q; setp.ne.u32 p, %1, 0;\n"
      "barrier.cta.red.or.pred q, %2, %3, p;\n"
      "selp.u32 %0, 1, 0, q; }"
      : "=r"(any)
      : "r"(static_cast<uint32_t>(mine)), "r"(id), "r"(threads)
      : "memory");
  return any != 0;
}

// Keys [begin, end), shared memory for 32 of them and their values, a barrier of the warpgroup.
struct FallbackKeys {
  int begin, end;
  uint32_t at;
  int barrier;
};

// The rows of a warpgroup, from `first` on for this warp, with the highest scores followed as they
// come. `Masked`: with what p.mask says.
template <class T, int D, bool Masked>
__device__ __forceinline__ void recompute_rows_online(Running<1, D>& r, const ForwardParams& p,
                                                      int head, int first, const FallbackKeys& of) {
  constexpr int keys = 32;
  const int lane = threadIdx.x % 32, thread = threadIdx.x % 128;
  const uint32_t v_at = of.at + Tile<D>::bytes(keys);
  auto k = rows_of<T>(p.z, p.k, head, p.z.s), v = rows_of<T>(p.z, p.v, head, p.z.s);
  k.count = v.count = of.end;
  RowsA<1, D> q;
  read_a(q, rows_of<T>(p.z, p.q, head, p.z.t), first, lane);
  reset(r);
#pragma unroll 1
  for (int j = of.begin; j < of.end; j += keys) {
    barrier_sync(of.barrier, 128);  // all are done with the keys before
    copy_rows<D, keys, 128>(of.at, k, j, thread);
    copy_rows<D, keys, 128>(v_at, v, j, thread);
    commit_copies();
    wait_copies<0>();
    barrier_sync(of.barrier, 128);
    float s[1][keys / 8][4];
    gemm_rows<T>(s, q, of.at, lane);
    if (j + keys > of.end) mask_columns(s, of.end - j, lane);
    if constexpr (Masked) hide_keys(s, HeadMask(p.z, p.mask, head), first, j, lane);
    weigh<1, keys / 8, D, Masked>(s, r, p.z.scale_log2);
    add_weighted_rows<T, 1, keys / 8, D>(r.o, s, v_at, lane);
  }
}

}  // namespace ebb::ops::cuda
