// attention_grad of a short sequence in one thread block with wgmma (sm_90a): everything in shared
// memory, each warpgroup owns one or two times 64 keys. The warpgroups compute dq of the query
// blocks round-robin, from ds in shared memory.
#pragma once

#include "backend/cuda/attention/core_tiles.cuh"
#include "backend/cuda/attention/wgmma.cuh"
#include "backend/cuda/kit/mbarrier.cuh"
#include "ops/prim/attention_grad/cuda/blocks.cuh"

namespace ebb::ops::cuda {

// `Groups` warpgroups, 64 * `Own` keys each; queries in blocks of 64.
template <int D, int Groups, int Own>
struct GradGroupShape {
  static constexpr int threads = 128 * Groups;
  static constexpr int keys = 64 * Groups * Own;
  static constexpr int block = 64;
  static constexpr int zero_bytes = 1024;
  static constexpr int ds_bytes = keys * block * 2;
  static constexpr int queries(int t) { return (t + block - 1) / block * block; }
  static constexpr int bytes(int t) {
    return zero_bytes + 2 * core_bytes(D, keys) + (queries(t) > block ? 2 : 1) * ds_bytes +
           2 * core_bytes(D, queries(t)) + queries(t) * 8;
  }
};

// Shared memory layout: zeros, k, v, one or two ds, q, do, lse_log2, delta.
struct GradGroupMemory {
  uint32_t zeros;
  CoreTile k, v, q, dout, ds;
  uint32_t next_ds;  // bytes from one ds to the other
  float *lse_log2, *delta;
};

template <int D, int Groups, int Own>
__device__ __forceinline__ GradGroupMemory layout_group(unsigned char* memory, int queries) {
  using S = GradGroupShape<D, Groups, Own>;
  GradGroupMemory m;
  m.zeros = shared_address(memory);
  m.k = {m.zeros + S::zero_bytes, core_stride(S::keys)};
  m.v = {m.k.at + core_bytes(D, S::keys), m.k.stride};
  m.ds = {m.v.at + core_bytes(D, S::keys), S::keys * 16};
  const bool two = queries > S::block;
  m.next_ds = two ? S::ds_bytes : 0;
  m.q = {m.ds.at + (two ? 2 : 1) * S::ds_bytes, static_cast<uint32_t>(core_stride(queries))};
  m.dout = {m.q.at + D / 8 * m.q.stride, m.q.stride};
  m.lse_log2 = reinterpret_cast<float*>(memory + (m.dout.at - m.zeros) + D / 8 * m.q.stride);
  m.delta = m.lse_log2 + queries;
  return m;
}

// Loads everything for a head: rows, zeros, lse_log2 and delta.
template <class T, int D, int Groups, int Own>
__device__ __forceinline__ void fill_group(const GradParams& p, const GradGroupMemory& m, int head,
                                           int queries) {
  using S = GradGroupShape<D, Groups, Own>;
  const auto q = rows_of<T>(p.z, p.z.q, p.q, head, p.z.t), dout = dout_rows_of<T>(p, head);
  copy_core_tile<D, S::keys, S::threads>(m.k, 0, rows_of<T>(p.z, p.z.k, p.k, head, p.z.s), 0,
                                         threadIdx.x);
  copy_core_tile<D, S::keys, S::threads>(m.v, 0, rows_of<T>(p.z, p.z.v, p.v, head, p.z.s), 0,
                                         threadIdx.x);
#pragma unroll 1
  for (int row = 0; row < queries; row += S::block) {
    copy_core_tile<D, S::block, S::threads>(m.q, row, q, row, threadIdx.x);
    copy_core_tile<D, S::block, S::threads>(m.dout, row, dout, row, threadIdx.x);
  }
  commit_copies();
  if (threadIdx.x < 64)
    asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(m.zeros + threadIdx.x * 16),
                 "r"(0)
                 : "memory");
  compute_row_stats<T, S::threads>(p, m.lse_log2, m.delta, head, queries);
  wait_copies<0>();
  fence_async();
  __syncthreads();  // everything is in shared memory
}

// ds^T, in place of dp^T.
__device__ __forceinline__ void differentiate(float (&ds)[4][4], const float (&weight)[4][4],
                                              const float* delta) {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int n = 0; n < 4; ++n) {
    const float2 by = *reinterpret_cast<const float2*>(delta + 8 * n + lane % 4 * 2);
#pragma unroll
    for (int i = 0; i < 4; ++i) ds[n][i] = weight[n][i] * (ds[n][i] - (i % 2 == 0 ? by.x : by.y));
  }
}

// Packed weights of 64 keys and 32 queries into a tile: rows are keys.
__device__ __forceinline__ void store_core_tile(const CoreTile& t, int row, int chunk,
                                                const uint32_t (&a)[2][4]) {
  const int lane = threadIdx.x % 32, key = row + threadIdx.x % 128 / 32 * 16 + lane / 4;
#pragma unroll
  for (int k = 0; k < 2; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      store_shared(
          t.at + (key + i % 2 * 8) * 16 + (chunk + 2 * k + i / 2) * t.stride + lane % 4 * 4,
          a[k][i]);
}

// dq of the 64 queries from `begin` on, by one warpgroup.
template <class T, int D>
__device__ __forceinline__ void write_dq_block(const GradParams& p, const GradGroupMemory& m,
                                               const CoreTile& ds, int head, int begin) {
  float c[1][D / 8][4];
  clear(c);
  wgmma_fence();
#pragma unroll 1
  for (int j = 0; j < p.z.s; j += 16)
    wgmma<T, 1, 1>(c[0], columns_operand(ds, j, 0), columns_operand(m.k, j, 0), 1);
  wgmma_commit();
  wgmma_wait<0>();
  write_scaled<T, 1, D>(rows_of<T>(p.z, p.dq_lies, p.dq, head, p.z.t),
                        begin + threadIdx.x % 128 / 32 * 16, c, p.z.scale, threadIdx.x % 32);
}

// dk += ds^T q and dv += p^T do for 32 queries from row `row` on; keeps ds^T in `out`.
template <class T, int D, int Own>
__device__ __forceinline__ void add_queries(float (&dk)[Own][D / 8][4], float (&dv)[Own][D / 8][4],
                                            const GradGroupMemory& m, const CoreTile& out, int key,
                                            int row, const HeadSizes& z) {
  float s[Own][4][4], ds[Own][4][4];
  wgmma_fence();
#pragma unroll
  for (int j = 0; j < Own; ++j) {
    gemm_core_tiles<T, D, 32>(s[j], m.k, key + 64 * j, m.q, row, m.zeros);
    wgmma_commit();
    gemm_core_tiles<T, D, 32>(ds[j], m.v, key + 64 * j, m.dout, row, m.zeros);
    wgmma_commit();
  }
#pragma unroll
  for (int j = 0; j < Own; ++j) {
    if (Own == 2 && j == 0) wgmma_wait<3>();
    if (Own == 2 && j == 1) wgmma_wait<2>();
    if (Own == 1) wgmma_wait<1>();
    uint32_t weights[2][4], gradients[2][4];
    float2 lse_log2[4];
    load_row_stats(lse_log2, m.lse_log2 + row);
    exp_scores_transposed(s[j], lse_log2, z.scale_log2, z.s - key - 64 * j);
    pack_weights<T, 32>(weights, s[j]);
    if (Own == 2 && j == 0) wgmma_wait<2>();
    if (Own == 2 && j == 1) wgmma_wait<1>();
    if (Own == 1) wgmma_wait<0>();
    differentiate(ds[j], s[j], m.delta + row);
    pack_weights<T, 32>(gradients, ds[j]);
    wgmma_fence();
    add_weighted_core_tile<T, D, 32>(dv[j], weights, m.dout, row);
    add_weighted_core_tile<T, D, 32>(dk[j], gradients, m.q, row);
    wgmma_commit();
    store_core_tile(out, key + 64 * j, row % 64 / 8, gradients);
  }
  wgmma_wait<0>();
}

// dq, dk and dv of a head of at most 64 * Groups * Own keys whose queries fit into shared memory.
// grid: one thread block per head.  sums: f32, in the order of the keys and queries.
// deterministic: yes.
template <class T, int D, int Groups, int Own>
__global__ __launch_bounds__(128 * Groups) void attention_grad_group(
    const __grid_constant__ GradParams p) {
  begin();
  using S = GradGroupShape<D, Groups, Own>;
  extern __shared__ __align__(1024) unsigned char memory[];
  const int group = warpgroup(), own = group * 64 * Own, queries = S::queries(p.z.t);
  const int head = blockIdx.x;
  const GradGroupMemory m = layout_group<D, Groups, Own>(memory, queries);
  fill_group<T, D, Groups, Own>(p, m, head, queries);
  float dk[Own][D / 8][4], dv[Own][D / 8][4];
  clear(dk);
  clear(dv);
#pragma unroll 1
  for (int b = 0; b < queries / S::block; ++b) {
    const CoreTile out{m.ds.at + b % 2 * m.next_ds, m.ds.stride};
    if (b >= 2 && (b - 2) % Groups != group)
      named_barrier_sync(3 + b % 2, S::threads);  // dq of block b - 2 has been computed from `out`
#pragma unroll 1
    for (int i = 0; i < S::block; i += 32)
      add_queries<T, D, Own>(dk, dv, m, out, own, b * S::block + i, p.z);
    fence_async();
    if (b % Groups != group) {
      named_barrier_arrive(1 + b % 2, S::threads);
      continue;
    }
    named_barrier_sync(1 + b % 2, S::threads);  // ds of the block is complete
    write_dq_block<T, D>(p, m, out, head, b * S::block);
    if (b + 2 < queries / S::block) named_barrier_arrive(3 + b % 2, S::threads);
  }
  const int first = own + threadIdx.x % 128 / 32 * 16, lane = threadIdx.x % 32;
  const auto to_k = rows_of<T>(p.z, p.dk_lies, p.dk, head, p.z.s),
             to_v = rows_of<T>(p.z, p.dv_lies, p.dv, head, p.z.s);
#pragma unroll
  for (int j = 0; j < Own; ++j) {
    using One = float(&)[1][D / 8][4];
    write_scaled<T, 1, D>(to_k, first + 64 * j, reinterpret_cast<One>(dk[j]), p.z.scale, lane);
    write_scaled<T, 1, D>(to_v, first + 64 * j, reinterpret_cast<One>(dv[j]), 1.f, lane);
  }
}

}  // namespace ebb::ops::cuda
