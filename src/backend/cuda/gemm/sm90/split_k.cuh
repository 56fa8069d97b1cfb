// Split-K: the reduction of a tile's partials, and cluster split-K, which reduces them through
// distributed shared memory (DSMEM).
#pragma once

#include "backend/cuda/gemm/sm90/store.cuh"

namespace ebb::cuda::gemm {

// A full tile.
struct FullTile {
  int tile_m, tile_n;
  bool taps;  // columns are those of wgrad
  DType out;
};

__device__ inline float value_at(const void* data, DType t, int64_t i) {
  if (t == DType::f32) return static_cast<const float*>(data)[i];
  if (t == DType::f16) return to_float(static_cast<const __half*>(data)[i]);
  return to_float(static_cast<const __nv_bfloat16*>(data)[i]);
}

template <class T>
__device__ void store_four(void* out, int64_t i, const Vec<float, 4>& v, int count) {
  T* to = static_cast<T*>(out) + i;
  if (count == 4 && i % 4 == 0) {
    Vec<T, 4> four;
#pragma unroll
    for (int e = 0; e < 4; ++e) four.v[e] = from_float<T>(v.v[e]);
    *reinterpret_cast<Vec<T, 4>*>(to) = four;
    return;
  }
  for (int e = 0; e < count; ++e) to[e] = from_float<T>(v.v[e]);
}

__device__ inline void store_four_as(DType t, void* out, int64_t i, const Vec<float, 4>& v,
                                     int count) {
  if (t == DType::f32)
    store_four<float>(out, i, v, count);
  else if (t == DType::f16)
    store_four<__half>(out, i, v, count);
  else
    store_four<__nv_bfloat16>(out, i, v, count);
}

// The values, rounded to `t`.
__device__ inline Vec<float, 4> rounded_as(DType t, Vec<float, 4> v) {
#pragma unroll
  for (int e = 0; e < 4; ++e)
    v.v[e] = t == DType::f32   ? v.v[e]
             : t == DType::f16 ? to_float(from_float<__half>(v.v[e]))
                               : to_float(from_float<__nv_bfloat16>(v.v[e]));
  return v;
}

// Columns of the result from a tile's column on: where they begin, and how many of 4 exist.
struct Run {
  int64_t first;
  int count;
};
__device__ inline Run run_at(const Params& p, const FullTile& q, int column) {
  if (!q.taps) return {column, ::min(4, p.n - column)};
  const Divided tap = p.channel_blocks.divide(column / 64);
  const int c = tap.remainder * 64 + column % 64;
  if (tap.quotient >= p.taps.by) return {0, 0};
  return {int64_t{tap.quotient} * p.channels + c, ::min(4, p.channels - c)};
}

// The epilogue of elements i * 4 to i * 4 + 3 of a tile, row by row: the same operations and
// roundings as for the boxes of other tiles.
__device__ inline void finish(const Params& p, const FullTile& q, const WorkUnit& u, int i,
                              Vec<float, 4> sum) {
  const int row = u.m * q.tile_m + i * 4 / q.tile_n;
  const Run run = run_at(p, q, u.n * q.tile_n + i * 4 % q.tile_n);
  if (row >= p.m || run.count <= 0) return;
  if (p.bias != nullptr)
    for (int e = 0; e < run.count; ++e) sum.v[e] += value_at(p.bias, p.bias_type, run.first + e);
  const int64_t at = u.batch * p.out_matrix + int64_t{row} * p.n + run.first;
  if (p.kept != nullptr) store_four_as(q.out, p.kept, at, sum, run.count);
  if (p.post == Post::activate) sum = activated<false>(p.activation, rounded_as(q.out, sum));
  if (p.post == Post::activation_grad) {
    Vec<float, 4> y = {};
    for (int e = 0; e < run.count; ++e) y.v[e] = value_at(p.grad_at, q.out, at + e);
    y = rounded_as(q.out, activated<true>(p.activation, y));
    for (int e = 0; e < run.count; ++e) sum.v[e] *= y.v[e];
  }
  if (p.post == Post::add && p.residual_rows > 0) {
    const int64_t from = (int64_t{u.batch} * p.m + row) / p.residual_rows * p.n + run.first;
    for (int e = 0; e < run.count; ++e) sum.v[e] += value_at(p.residual, p.residual_type, from + e);
  }
  store_four_as(q.out, p.out, at, sum, run.count);
}

// ---- in a cluster ------------------------------------------------------------------------------

// The offset of four consecutive partials of a tile in a CTA's shared memory: rows of vectors of
// four, swizzled so that threads with consecutive rows write to different banks.
template <class C>
__device__ uint32_t four_at(const SharedStorage<C>& s, int row, int four) {
  static_assert(C::can_cluster_split_k);
  return s.a(0) + (row * (C::tile_n / 4) + (four ^ row % 4 * 2)) * 16;
}

// The threads that read operands: consumers, and the warps that compute A's row sums.
template <class C>
__device__ int read_by(const Params& p) {
  return C::producer + (p.row_sums != nullptr ? 32 * C::sum_warps : 0);
}

// Stores a thread's accumulators to the CTA's shared memory, in the place of the operands: the
// mainloop and the loads are over.
template <class C>
__device__ void store_partial(const Params& p, const SharedStorage<C>& s,
                              const Accumulators<C>& d) {
  named_barrier_sync(1, read_by<C>(p));  // all have read the operands
  const Spot<C> at(WorkUnit{});
#pragma unroll
  for (int i = 0; i < C::rows * 2; ++i) {
    const int row = at.row + i / 2 * 64 + i % 2 * 8 + at.lane / 4;
#pragma unroll
    for (int j = 0; j < C::columns / 8; ++j) {
      const uint32_t to = four_at(s, row, at.column / 4 + j * 2 + at.lane % 4 / 2);
      asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to + at.lane % 2 * 8),
                   "f"(d[i / 2][j * 4 + i % 2 * 2]), "f"(d[i / 2][j * 4 + i % 2 * 2 + 1])
                   : "memory");
    }
  }
}

__device__ inline Vec<float, 4> load_four_at(uint32_t from, uint32_t rank) {
  Vec<float, 4> v;
  asm volatile(
      "{ .reg .b32 remote; mapa.shared::cluster.u32 remote, %4, %5;\n"
      "ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [remote]; }"
      : "=f"(v.v[0]), "=f"(v.v[1]), "=f"(v.v[2]), "=f"(v.v[3])
      : "r"(from), "r"(rank)
      : "memory");
  return v;
}

// Reduces this CTA's share of the cluster's tile over all splits, in their order.
template <class C>
__device__ void reduce_cluster(const Params& p, const SharedStorage<C>& s, const WorkUnit& u) {
  constexpr int most = 8, fours = C::tile_n / 4, all = C::tile_m * fours;
  const bool floats = p.store == Store::floats || p.store == Store::float_subtiles;
  constexpr DType type = std::is_same_v<typename C::T, __half> ? DType::f16 : DType::bf16;
  const FullTile data_parallel{.tile_m = C::tile_m,
                               .tile_n = C::tile_n,
                               .taps = C::form == Form::wgrad,
                               .out = floats ? DType::f32 : type};
  const int rank = static_cast<int>(cluster_rank());
  const int end = all * (rank + 1) / p.split_k;
  for (int i = all * rank / p.split_k + threadIdx.x; i < end; i += C::producer) {
    const uint32_t from = four_at(s, i / fours, i % fours);
    Vec<float, 4> part[most];
#pragma unroll
    for (int r = 0; r < most; ++r)
      if (r < p.split_k) part[r] = load_four_at(from, r);
    Vec<float, 4> sum = part[0];
#pragma unroll
    for (int r = 1; r < most; ++r)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (r < p.split_k) sum.v[e] += part[r].v[e];
    finish(p, data_parallel, u, i, sum);
  }
}

}  // namespace ebb::cuda::gemm
