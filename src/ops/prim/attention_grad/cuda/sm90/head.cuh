// attention_grad of short sequences on wgmma (sm_90a), plain or with a causal mask: a thread block
// has a whole head in shared memory, loaded and stored by TMA, and a warpgroup owns 64 of its keys.
// Several thread blocks per SM overlap loads, stores and computation. What a causal mask hides is
// computed, too.
#pragma once

#include "backend/cuda/attention/wgmma.cuh"
#include "backend/cuda/kit/mbarrier.cuh"
#include "ops/prim/attention_grad/cuda/blocks.cuh"

namespace ebb::ops::cuda {

struct HeadGradParams {
  GradParams g;
  // Of rank 4: columns, rows, heads, samples; boxes of 64 columns and 64 rows.
  CUtensorMap q, k, v, o, dout, dq, dk, dv;
  int blocks;  // of 64 queries
};

// Heads up to D <= 64 wide with at most 64 * Groups keys, and 64 queries if `One`.
template <int D, int Groups, bool One>
struct HeadGradShape {
  static_assert(D == 32 || D == 64);
  static constexpr bool one = One;
  static constexpr int width = D, groups = Groups, threads = 128 * Groups;
  static constexpr int step = Groups == 1 ? 64 : 32;  // queries at a time
  static constexpr int resident =
      Groups == 1 ? 3 : 2;               // thread blocks per SM, limited by registers
  static constexpr int tile = 64 * 128;  // bytes of 64 rows
  // Shared memory: keys, values (reused for dv), and for each block of 64 queries q (reused for
  // dq), do (reused for dk) and o, which shares its memory with ds of the block and all keys.
  static constexpr int keys = 0, values = Groups * tile, queries = 2 * Groups * tile;
  static constexpr int block_bytes = (2 + Groups) * tile, dout = tile, o = 2 * tile, ds = o;
  static constexpr int barriers = 3;  // k and q; v and do; o
  static constexpr int bytes(int blocks) {
    return queries + blocks * (block_bytes + 64 * 8) + barriers * 8;
  }
};

// State of a warpgroup.
struct HeadGradWork {
  unsigned char* memory;
  uint32_t at, barrier;     // addresses of memory and of the first barrier
  int group;                // which 64 keys
  int a, n;                 // head and sample
  float *lse_log2, *delta;  // of all queries, in shared memory
};

// One thread loads everything.
template <class S>
__device__ __forceinline__ void load_head(const HeadGradParams& p, const HeadGradWork& w) {
  const uint32_t at = w.at, barrier = w.barrier;
  barrier_expect(barrier, (S::groups + p.blocks) * S::tile);
#pragma unroll
  for (int i = 0; i < S::groups; ++i)
    load_box4(at + S::keys + i * S::tile, barrier, p.k, {0, i * 64, w.a, w.n});
#pragma unroll 1
  for (int i = 0; i < p.blocks; ++i)
    load_box4(at + S::queries + i * S::block_bytes, barrier, p.q, {0, i * 64, w.a, w.n});
  barrier_expect(barrier + 8, (S::groups + p.blocks) * S::tile);
#pragma unroll
  for (int i = 0; i < S::groups; ++i)
    load_box4(at + S::values + i * S::tile, barrier + 8, p.v, {0, i * 64, w.a, w.n});
#pragma unroll 1
  for (int i = 0; i < p.blocks; ++i)
    load_box4(at + S::queries + i * S::block_bytes + S::dout, barrier + 8, p.dout,
              {0, i * 64, w.a, w.n});
  barrier_expect(barrier + 16, p.blocks * S::tile);
#pragma unroll 1
  for (int i = 0; i < p.blocks; ++i)
    load_box4(at + S::queries + i * S::block_bytes + S::o, barrier + 16, p.o,
              {0, i * 64, w.a, w.n});
}

// lse of all queries, in units of log 2.
template <class S>
__device__ __forceinline__ void load_lse(const HeadGradParams& p, float* lse_log2) {
  const int64_t first = int64_t{blockIdx.x} * p.g.z.t;
#pragma unroll 1
  for (int t = threadIdx.x; t < 64 * p.blocks; t += S::threads)
    lse_log2[t] = t < p.g.z.t ? element(p.g.lse, p.g.lse_dtype, first + t) * kLog2e : INFINITY;
}

// delta of all queries, from o and do in shared memory; four threads per row.
template <class T, class S>
__device__ __forceinline__ void compute_head_delta(const HeadGradParams& p, const HeadGradWork& w) {
  constexpr int chunks = S::width / 32;  // of 8 columns, per thread
  const int lane = threadIdx.x % 4;
#pragma unroll 1
  for (int t = threadIdx.x / 4; t < 64 * p.blocks; t += S::threads / 4) {
    const unsigned char* const row = w.memory + S::queries + t / 64 * S::block_bytes + t % 64 * 128;
    float sum = 0;
#pragma unroll
    for (int i = 0; i < chunks; ++i) {
      const int at = ((chunks * lane + i) ^ t % 8) * 16;
      const auto x = *reinterpret_cast<const uint4*>(row + S::o + at);
      const auto y = *reinterpret_cast<const uint4*>(row + S::dout + at);
      const uint32_t xs[4] = {x.x, x.y, x.z, x.w}, ys[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float2 a = unpack<T>(xs[j]), b = unpack<T>(ys[j]);
        sum = fmaf(a.x, b.x, sum);
        sum = fmaf(a.y, b.y, sum);
      }
    }
    sum = quad_sum(sum);
    if (lane != 0) continue;
    if (p.g.dlse != nullptr && t < p.g.z.t)
      sum -= element(p.g.dlse, p.g.dlse_dtype, int64_t{blockIdx.x} * p.g.z.t + t);
    w.delta[t] = sum;
  }
}

// c = 64 rows of `a` (k or v) times the transpose of S::step rows of `b` (q or do).
template <class T, class S>
__device__ __forceinline__ void start_head_gemm(float (&c)[S::step / 8][4], uint32_t a,
                                                uint32_t b) {
  const uint64_t x = swizzled_operand(a, 0), y = swizzled_operand(b, 0);
#pragma unroll
  for (int k = 0; k < S::width / 16; ++k) wgmma<T, 0, 0>(c, x + k * 2, y + k * 2, k > 0);
}

// sum (+)= packed weights times S::step rows of `b`.
template <class T, class S>
__device__ __forceinline__ void start_head_dkv(float (&sum)[S::width / 8][4],
                                               const uint32_t (&a)[S::step / 16][4], uint32_t b,
                                               bool first) {
  const uint64_t y = swizzled_operand(b, 0);
#pragma unroll
  for (int k = 0; k < S::step / 16; ++k) wgmma<T, 1>(sum, a[k], y + k * 128, k > 0 || !first);
}

// 64 rows, scaled, into a tile for a TMA store.
template <class T, int N>
__device__ __forceinline__ void store_tile(uint32_t tile, const float (&c)[N][4], float factor) {
  const float factors[2] = {factor, factor};
#pragma unroll
  for (int n = 0; n < N; n += 2) {
    uint32_t x[4];
    pack_columns<T>(x, c, n, factors);
    store_columns(tile, 8 * n, x);
  }
}

// Accumulates S::step queries from `query` on into dk and dv; ds stays in shared memory. `One`:
// there is only this block; waits for its own loads, and dk and dv are overwritten.
template <class T, class S, bool One>
__device__ __forceinline__ void process_query_block(const HeadGradParams& p, const HeadGradWork& w,
                                                    int query, float (&dk)[S::width / 8][4],
                                                    float (&dv)[S::width / 8][4]) {
  const int row = One ? 0 : query % 64;
  const uint32_t own = w.group * S::tile;
  const uint32_t block = w.at + S::queries + query / 64 * S::block_bytes;
  const uint32_t q = block + row * 128, dout = q + S::dout;
  float s[S::step / 8][4], dp[S::step / 8][4];
  uint32_t weights[S::step / 16][4], ds[S::step / 16][4];
  float2 lse_log2[S::step / 8], delta[S::step / 8];
  if (One) barrier_wait(w.barrier, 0);
  wgmma_fence();
  start_head_gemm<T, S>(s, w.at + S::keys + own, q);
  wgmma_commit();
  if (One) {
    barrier_wait(w.barrier + 8, 0);
    wgmma_fence();
  }
  start_head_gemm<T, S>(dp, w.at + S::values + own, dout);
  wgmma_commit();
  if (One) {
    barrier_wait(w.barrier + 16, 0);
    compute_head_delta<T, S>(p, w);
    __syncthreads();  // lse and delta are there, and o is no longer read
  }
  load_row_stats(lse_log2, w.lse_log2 + query);
  wgmma_wait<1>();
  fence_accumulators(s);
  exp_scores_transposed(s, lse_log2, p.g.z.scale_log2, p.g.z.s - w.group * 64);
  mask_later_keys(s, w.group * 64, query + p.g.mask.diagonal - 1);
  pack_weights<T, S::step>(weights, s);
  fence_accumulators(weights);
  wgmma_fence();
  start_head_dkv<T, S>(dv, weights, dout, One);
  wgmma_commit();
  load_row_stats(delta, w.delta + query);
  wgmma_wait<1>();
  fence_accumulators(dp);
  differentiate<T>(ds, weights, dp, delta);
  fence_accumulators(ds);
  wgmma_fence();
  start_head_dkv<T, S>(dk, ds, q, One);
  wgmma_commit();
#pragma unroll
  for (int k = 0; k < S::step / 16; ++k) store_columns(block + S::ds + own, row + 16 * k, ds[k]);
  wgmma_wait<0>();
  fence_accumulators(dk);
  fence_accumulators(dv);
}

// dk and dv of the warpgroup's keys, and ds of all queries in shared memory.
template <class T, class S>
__device__ __forceinline__ void process_query_blocks(const HeadGradParams& p, const HeadGradWork& w,
                                                     float (&dk)[S::width / 8][4],
                                                     float (&dv)[S::width / 8][4]) {
  for (int i = 0; i < S::barriers; ++i) barrier_wait(w.barrier + 8 * i, 0);
  compute_head_delta<T, S>(p, w);
#pragma unroll
  for (int n = 0; n < S::width / 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) dk[n][i] = dv[n][i] = 0;
  fence_accumulators(dk);
  fence_accumulators(dv);
  __syncthreads();  // lse and delta are there, and o is no longer read
#pragma unroll 1
  for (int query = 0; query < 64 * p.blocks; query += S::step)
    process_query_block<T, S, false>(p, w, query, dk, dv);
}

// Starts dq of a block of queries.
template <class T, class S>
__device__ __forceinline__ void start_head_dq(float (&dq)[S::width / 8][4], uint32_t ds,
                                              uint32_t keys) {
  const uint64_t x = swizzled_operand(ds, 0), y = swizzled_operand(keys, 0);
  wgmma_fence();
#pragma unroll
  for (int i = 0; i < 4 * S::groups; ++i) wgmma<T, 1, 1>(dq, x + i * 128, y + i * 128, i > 0);
  wgmma_commit();
}

// Stores dk and dv of the warpgroup's keys, through the shared memory of values and do.
template <class T, class S>
__device__ __forceinline__ void store_dkv(const HeadGradParams& p, const HeadGradWork& w,
                                          const float (&dk)[S::width / 8][4],
                                          const float (&dv)[S::width / 8][4]) {
  const uint32_t dv_at = w.at + S::values + w.group * S::tile;
  const uint32_t dk_at = w.at + S::queries + w.group * S::block_bytes + S::dout;
  store_tile<T>(dv_at, dv, 1.f);
  store_tile<T>(dk_at, dk, p.g.z.scale);
  fence_async();
  named_barrier_sync(1 + w.group, 128);  // dk and dv are complete
  if (threadIdx.x % 128 != 0) return;
  store_box(p.dv, dv_at, {0, 64 * w.group, w.a, w.n});
  store_box(p.dk, dk_at, {0, 64 * w.group, w.a, w.n});
}

// Stores dq of query block `b`, through the shared memory of q.
template <class T, class S>
__device__ __forceinline__ void store_dq(const HeadGradParams& p, const HeadGradWork& w,
                                         const float (&dq)[S::width / 8][4], int b) {
  const uint32_t q = w.at + S::queries + b * S::block_bytes;
  store_tile<T>(q, dq, p.g.z.scale);
  fence_async();
  named_barrier_sync(1 + w.group, 128);  // dq is complete
  if (threadIdx.x % 128 == 0) store_box(p.dq, q, {0, 64 * b, w.a, w.n});
}

// dq, dk and dv.
// grid: one thread block per head.  sums: f32, in the order of the keys and queries.
// deterministic: yes.
template <class T, class S>
__global__ __launch_bounds__(S::threads, S::resident) void attention_grad_sm90_head(
    const __grid_constant__ HeadGradParams p) {
  extern __shared__ __align__(1024) unsigned char memory[];
  const int tiles = p.blocks > S::groups ? p.blocks : S::groups;
  const int sums = S::queries + tiles * S::block_bytes, head = static_cast<int>(blockIdx.x);
  HeadGradWork w{.memory = memory, .at = shared_address(memory)};
  w.barrier = w.at + sums + tiles * 64 * 8;
  w.group = warpgroup(), w.a = head % p.g.z.a, w.n = head / p.g.z.a;
  w.lse_log2 = reinterpret_cast<float*>(memory + sums), w.delta = w.lse_log2 + 64 * tiles;
  if (threadIdx.x == 0) {
    for (const CUtensorMap* m : {&p.k, &p.q, &p.v, &p.dout, &p.o, &p.dv, &p.dk, &p.dq})
      prefetch_map(*m);
#pragma unroll
    for (int i = 0; i < S::barriers; ++i) barrier_init(w.barrier + 8 * i, 1);
    barrier_init_done();
  }
  __syncthreads();  // barriers are initialised
  begin();
  if (threadIdx.x == 0) load_head<S>(p, w);
  load_lse<S>(p, w.lse_log2);
  float dk[S::width / 8][4], dv[S::width / 8][4];
  if constexpr (S::one)
    process_query_block<T, S, true>(p, w, 0, dk, dv);
  else
    process_query_blocks<T, S>(p, w, dk, dv);
  fence_async();
  __syncthreads();  // ds is complete; q, do and values are no longer read
  let_next_start();
  float dq[S::width / 8][4];
  if constexpr (S::one) {
    start_head_dq<T, S>(dq, w.at + S::queries + S::ds, w.at + S::keys);
    store_dkv<T, S>(p, w, dk, dv);
    wgmma_wait<0>();
    fence_accumulators(dq);
    store_dq<T, S>(p, w, dq, 0);
  } else {
    store_dkv<T, S>(p, w, dk, dv);
#pragma unroll 1
    for (int b = w.group; b < p.blocks; b += S::groups) {
      start_head_dq<T, S>(dq, w.at + S::queries + b * S::block_bytes + S::ds, w.at + S::keys);
      wgmma_wait<0>();
      fence_accumulators(dq);
      store_dq<T, S>(p, w, dq, b);
    }
  }
  if (threadIdx.x % 128 == 0) store_wait_read<0>();
}

}  // namespace ebb::ops::cuda
