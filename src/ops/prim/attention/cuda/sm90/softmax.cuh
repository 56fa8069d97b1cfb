// attention on wgmma: softmax and GEMMs of a warpgroup's 64 queries and a block of keys. Scores are
// in units of log 2.
#pragma once

#include <cfloat>

#include "backend/cuda/attention/wgmma.cuh"
#include "backend/cuda/kit/mbarrier.cuh"
#include "ops/prim/attention/cuda/forward.cuh"

namespace ebb::ops::cuda {

// ---- softmax -----------------------------------------------------------------------------------

// Weights are 2^(scale s - row_max) with row_max of a tile's first block of scores only: updating
// it for every block takes time that nothing hides. Rows whose sum passes this limit, below which
// no weight overflows its type, are recomputed at the end by `recompute_rows_online`.
template <class T>
constexpr float kMaxRowSum = 0x1p40f;
template <>
inline constexpr float kMaxRowSum<__half> = 0x1p15f;

// Softmax state of a thread's two rows.
struct OnlineSoftmax {
  float row_max[2], row_sum[2];  // row_sum: this thread's columns only
};

// Row i of a warp attends to the keys below of(i).
struct RowLimits {
  int count, first;  // keys of the sample; limit of row 0 before clamping
  __device__ __forceinline__ int of(int row) const { return ::min(count, first + row); }
};

// Sets scores of a thread's two rows to -infinity from column limit[h] of the block on.
template <int N>
__device__ __forceinline__ void mask_scores_beyond(float (&s)[N][4], const int (&key_limit)[2],
                                                   int lane) {
#pragma unroll
  for (int n = 0; n < N; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (8 * n + lane % 4 * 2 + i % 2 >= key_limit[i / 2]) s[n][i] = -INFINITY;
}

// Clamps row_max of fully masked rows to a finite value, so that their weights are 0.
__device__ __forceinline__ void bound_row_max(OnlineSoftmax& r) {
#pragma unroll
  for (int h = 0; h < 2; ++h) r.row_max[h] = fmaxf(r.row_max[h], -FLT_MAX);
}

// Initialises row_max from the first block of scores, and row_sum with 0.
template <int Keys>
__device__ __forceinline__ void init_row_max(OnlineSoftmax& r, const float (&s)[Keys / 8][4],
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
    const float row_max = fmaxf(fmaxf(top[0], top[1]), fmaxf(top[2], top[3]));
    r.row_max[h] = quad_max(row_max) * scale;
    r.row_sum[h] = 0;
  }
}

// Weights of a block, packed as the A operand of the p v GEMM.
template <class T, int N>
__device__ __forceinline__ void exp_scores_packed(uint32_t (&w)[N][4], const float (&s)[2 * N][4],
                                                  float scale, OnlineSoftmax& r) {
  float partial[2][2] = {};
#pragma unroll
  for (int n = 0; n < 2 * N; ++n) {
    float e[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      e[i] = fast_exp2(fmaf(s[n][i], scale, -r.row_max[i / 2]));
      partial[i / 2][i % 2] += e[i];
    }
    w[n / 2][n % 2 * 2] = pack<T>(e[0], e[1]);
    w[n / 2][n % 2 * 2 + 1] = pack<T>(e[2], e[3]);
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) r.row_sum[h] += partial[h][0] + partial[h][1];
}

// The same in place.
template <int N>
__device__ __forceinline__ void exp_scores(float (&s)[N][4], float scale, OnlineSoftmax& r) {
  float partial[2][2] = {};
#pragma unroll
  for (int n = 0; n < N; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      s[n][i] = fast_exp2(fmaf(s[n][i], scale, -r.row_max[i / 2]));
      partial[i / 2][i % 2] += s[n][i];
    }
#pragma unroll
  for (int h = 0; h < 2; ++h) r.row_sum[h] += partial[h][0] + partial[h][1];
}

// ---- GEMMs -------------------------------------------------------------------------------------

// Columns of a head in shared memory: TMA boxes of 64, and perhaps a tail of at most 16.
template <int D>
struct ColumnBoxes {
  static constexpr bool tail = D % 64 > 0 && D % 64 <= 16;
  static constexpr int boxes = tail ? D / 64 : (D + 63) / 64;
  static constexpr int box_columns = tail ? D / 64 * 64 : D;  // columns before the tail
};

// s = q k^T: 64 queries from `q` on in shared memory, `Keys` keys from `k` on.
template <class T, int D, int Keys>
__device__ __forceinline__ void start_scores(float (&s)[Keys / 8][4], uint32_t q, uint32_t k) {
  using C = ColumnBoxes<D>;
  const uint64_t a = swizzled_operand(q, 0), b = swizzled_operand(k, 0);
#pragma unroll
  for (int i = 0; i < (C::box_columns + 15) / 16; ++i)
    wgmma<T, 0, 0>(s, a + (i / 4 * 64 * 128 + i % 4 * 32) / 16,
                   b + (i / 4 * Keys * 128 + i % 4 * 32) / 16, i > 0);
  if constexpr (C::tail)
    wgmma<T, 0, 0>(s, swizzled_operand<32>(q + C::boxes * 64 * 128, 0),
                   swizzled_operand<32>(k + C::boxes * Keys * 128, 0), 1);
}

// o += w v, or o = w v for the `first`.
template <class T, int D, int Keys>
__device__ __forceinline__ void start_values(float (&o)[D / 8][4],
                                             const uint32_t (&w)[Keys / 16][4], uint32_t v,
                                             bool first) {
  using C = ColumnBoxes<D>;
  const uint64_t b = swizzled_operand(v, Keys * 128);
  const uint64_t tail = swizzled_operand<32>(v + C::boxes * Keys * 128, 0);
#pragma unroll
  for (int i = 0; i < Keys / 16; ++i) {
    using Wide = float(&)[C::box_columns / 8][4];
    wgmma<T, 1>(reinterpret_cast<Wide>(o[0]), w[i], b + i * 16 * 128 / 16, i > 0 || !first);
    if constexpr (C::tail) {
      using Tail = float(&)[(D - C::box_columns) / 8][4];
      wgmma<T, 1>(reinterpret_cast<Tail>(o[C::box_columns / 8]), w[i], tail + i * 16 * 32 / 16,
                  i > 0 || !first);
    }
  }
}

// ---- recomputation of overflowed rows ----------------------------------------------------------

// Whether `mine` holds for any of the `threads` threads of barrier `id`.
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

// Keys [begin, end); shared memory for 32 keys and values; a barrier of the warpgroup.
struct FallbackKeys {
  int begin, end;
  uint32_t at;
  int barrier;
};

// Rows of a warpgroup, from `first` on for this warp, by the full online softmax, on mma.sync.
// `Masked`: with the mask p.mask.
template <class T, int D, bool Masked>
__device__ __forceinline__ void recompute_rows_online(RowState<1, D>& r, const ForwardParams& p,
                                                      int head, int first, const FallbackKeys& of) {
  constexpr int keys = 32;
  const int lane = threadIdx.x % 32, thread = threadIdx.x % 128;
  const uint32_t v_at = of.at + Tile<D>::bytes(keys);
  auto k = key_rows_of<T>(p.z, p.z.k, p.k, head), v = key_rows_of<T>(p.z, p.z.v, p.v, head);
  k.count = v.count = of.end;
  RowsA<1, D> q;
  read_a(q, rows_of<T>(p.z, p.z.q, p.q, head, p.z.t), first, lane);
  reset(r);
#pragma unroll 1
  for (int j = of.begin; j < of.end; j += keys) {
    named_barrier_sync(of.barrier, 128);  // the previous keys have been used
    copy_rows<D, keys, 128>(of.at, k, j, thread);
    copy_rows<D, keys, 128>(v_at, v, j, thread);
    commit_copies();
    wait_copies<0>();
    named_barrier_sync(of.barrier, 128);
    float s[1][keys / 8][4];
    gemm_rows<T>(s, q, of.at, lane);
    if (j + keys > of.end) mask_columns(s, of.end - j, lane);
    if constexpr (Masked) mask_keys(s, HeadMask(p.z, p.mask, head), first, j, lane);
    online_softmax<1, keys / 8, D, Masked>(s, r, p.z.scale_log2);
    add_weighted_rows<T, 1, keys / 8, D>(r.o, s, v_at, lane);
  }
}

}  // namespace ebb::ops::cuda
