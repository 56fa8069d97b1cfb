// attention on wgmma (sm_90a): one warp fetches blocks of keys and values by TMA, each of the other
// warpgroups owns 64 queries and computes the scores of a block while the values of the one before
// are added up (Shah et al. 2024, FlashAttention-3). Scores are in units of log 2.
#pragma once

#include "backend/cuda/attention_wgmma.cuh"
#include "backend/cuda/mbarrier.cuh"
#include "backend/cuda/wgmma_wide.cuh"
#include "ops/prim/attention/cuda_head.cuh"

namespace ebb::ops::cuda {

using namespace ebb::cuda;

struct Sm90Params {
  CUtensorMap q, k, v;  // of rank 4: columns, rows, heads, samples; boxes of 64 columns
  HeadSizes z;
  void* o;
  float* lse;
  int parts;  // tiles of queries a head
};

// Heads up to D wide, `Keys` keys a block, `Groups` warpgroups of 64 queries. `Poly` of 8 powers
// are computed by a polynomial: at 16 a clock the special function unit is the bottleneck of narrow
// heads.
template <int D, int Keys, int Groups, int Poly>
struct Sm90Shape {
  static constexpr int width = D, keys = Keys, groups = Groups, poly = Poly;
  static constexpr int threads = 128 * (groups + 1);
  static constexpr int rows = 64 * groups;
  static constexpr int columns = (D + 63) / 64;  // pieces of 64 columns, 128 bytes a row
  static constexpr int query_bytes = rows * 128 * columns;
  static constexpr int block_bytes = keys * 128 * columns;
  static constexpr int room = 226 * 1024;
  static constexpr int queries = 2 * query_bytes + 4 * block_bytes <= room ? 2 : 1;
  static constexpr int fit = (room - queries * query_bytes) / (2 * block_bytes);
  static constexpr int stages = fit < 4 ? fit : 4;
  static constexpr int barriers = 2 * queries + 4 * stages;
  static constexpr int bytes =
      1024 + queries * query_bytes + 2 * stages * block_bytes + 8 * barriers;
  static constexpr int registers = groups == 2 ? 240 : groups == 3 ? 160 : 240;
  static_assert(stages >= 2 && bytes <= 227 * 1024 && Keys % 16 == 0);
};

// Where things lie in shared memory.
template <class S>
struct Sm90Memory {
  uint32_t q, k, v, barriers;

  __device__ uint32_t query(int i) const { return q + i * S::query_bytes; }
  __device__ uint32_t key(int i) const { return k + i * S::block_bytes; }
  __device__ uint32_t value(int i) const { return v + i * S::block_bytes; }
  __device__ uint32_t q_full(int i) const { return barriers + 8 * i; }
  __device__ uint32_t q_free(int i) const { return q_full(S::queries + i); }
  __device__ uint32_t k_full(int i) const { return q_full(2 * S::queries + i); }
  __device__ uint32_t k_free(int i) const { return k_full(S::stages + i); }
  __device__ uint32_t v_full(int i) const { return k_full(2 * S::stages + i); }
  __device__ uint32_t v_free(int i) const { return k_full(3 * S::stages + i); }
};

// A place in a ring of `Count` buffers, and the parity of its phase.
template <int Count>
struct RingAt {
  int i = 0;
  uint32_t phase = 0;
  __device__ __forceinline__ void next() {
    if (++i == Count) i = 0, phase ^= 1;
  }
};

// ---- the warp that fetches ---------------------------------------------------------------------

// Rows from `row` on of a head, all columns; `Rows` rows of 128 bytes a piece.
template <class S, int Rows>
__device__ __forceinline__ void fetch_rows(uint32_t to, uint32_t barrier, const CUtensorMap& map,
                                           int row, int head, int heads) {
  barrier_expect(barrier, Rows * 128 * S::columns);
#pragma unroll
  for (int c = 0; c < S::columns; ++c)
    load_box4(to + c * Rows * 128, barrier, map, {c * 64, row, head % heads, head / heads});
}

template <class S>
__device__ __forceinline__ void fetch_all(const Sm90Params& p, const Sm90Memory<S>& m) {
  RingAt<S::queries> q;
  RingAt<S::stages> k, v;
  const int blocks = (p.z.s + S::keys - 1) / S::keys;
  const int tiles = p.z.heads * p.parts;
  const auto keys = [&](int j, int head) {
    barrier_wait(m.k_free(k.i), k.phase ^ 1);
    fetch_rows<S, S::keys>(m.key(k.i), m.k_full(k.i), p.k, j * S::keys, head, p.z.a);
    k.next();
  };
  const auto values = [&](int j, int head) {
    barrier_wait(m.v_free(v.i), v.phase ^ 1);
    fetch_rows<S, S::keys>(m.value(v.i), m.v_full(v.i), p.v, j * S::keys, head, p.z.a);
    v.next();
  };
#pragma unroll 1
  for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int head = tile / p.parts;
    barrier_wait(m.q_free(q.i), q.phase ^ 1);
    fetch_rows<S, S::rows>(m.query(q.i), m.q_full(q.i), p.q, tile % p.parts * S::rows, head, p.z.a);
    q.next();
    keys(blocks - 1, head);
#pragma unroll 1
    for (int j = blocks - 1; j > 0; --j) {
      keys(j - 1, head);
      values(j, head);
    }
    values(0, head);
  }
}

// ---- weights -----------------------------------------------------------------------------------

// Of a thread's two rows: powers are 2^(scale s - highest), `highest` is a whole number.
struct RunningRows {
  float highest[2], sum[2];  // sum: of this thread's columns
};

// 2^(s scale - highest) without the special function unit, to 1e-4 (that of 16-bit weights is
// 5e-4 at best): powers of the whole part by the exponent, of the rest by a polynomial. `whole` is
// 1.5 2^23 - highest; s is at least `least`, where the power is 2^-126.
__device__ __forceinline__ float exp2_by_polynomial(float s, float scale, float whole,
                                                    float least) {
  s = fmaxf(s, least);
  const float t = fmaf(s, scale, whole);  // rounded to a whole number, which lies in the low bits
  const float rest = fmaf(s, scale, whole - t);
  float y = fmaf(rest, 0.05517166852951050f, 0.24261160194873810f);
  y = fmaf(y, rest, 0.69326096773147583f);
  y = fmaf(y, rest, 0.99992807693231000f);
  return __int_as_float(__float_as_int(y) + (__float_as_int(t) << 23));
}

// Weights of a block of scores, packed as the operand of a product; returns whether some are too
// large. Poly as in Sm90Shape.
template <class T, int Keys, int Poly>
__device__ __forceinline__ bool weigh_block(uint32_t (&w)[Keys / 16][4],
                                            const float (&s)[Keys / 8][4], float scale,
                                            const RunningRows& r, float (&sum)[2]) {
  constexpr float kLargest = 16384;  // weights of f16 end at 65504
  constexpr float kWhole = 12582912;
  const float whole[2] = {kWhole - r.highest[0], kWhole - r.highest[1]};
  const float inverse = 1 / scale;
  const float least[2] = {(r.highest[0] - 125) * inverse, (r.highest[1] - 125) * inverse};
  float part[2][2] = {};
#pragma unroll
  for (int n = 0; n < Keys / 8; ++n) {
    float e[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int h = i / 2;
      if ((n * 4 + i) * 3 % 8 < Poly)
        e[i] = exp2_by_polynomial(s[n][i], scale, whole[h], least[h]);
      else
        e[i] = fast_exp2(fmaf(s[n][i], scale, -r.highest[h]));
      part[h][i % 2] += e[i];
    }
    w[n / 2][n % 2 * 2] = pack<T>(e[0], e[1]);
    w[n / 2][n % 2 * 2 + 1] = pack<T>(e[2], e[3]);
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) sum[h] = part[h][0] + part[h][1];
  return !(sum[0] <= kLargest && sum[1] <= kLargest);
}

// `highest` becomes what the scores and the old one call for.
template <int Keys>
__device__ __forceinline__ void raise_highest(RunningRows& r, const float (&s)[Keys / 8][4],
                                              float scale) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float top = fmaxf(s[0][2 * h], s[0][2 * h + 1]);
#pragma unroll
    for (int n = 1; n < Keys / 8; ++n) top = fmaxf(top, fmaxf(s[n][2 * h], s[n][2 * h + 1]));
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
    top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
    r.highest[h] = fmaxf(r.highest[h], ceilf(top * scale));
  }
}

// ---- products ----------------------------------------------------------------------------------

// The compiler takes results of wgmma for there at once: values behind this line are those after
// it.
template <int N>
__device__ __forceinline__ void settle(float (&c)[N][4]) {
#pragma unroll
  for (int n = 0; n < N; ++n)
    asm volatile("" : "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])::"memory");
}
template <int N>
__device__ __forceinline__ void settle(uint32_t (&c)[N][4]) {
#pragma unroll
  for (int n = 0; n < N; ++n)
    asm volatile("" : "+r"(c[n][0]), "+r"(c[n][1]), "+r"(c[n][2]), "+r"(c[n][3])::"memory");
}

// s = q k^T, queries from `q` on in shared memory.
template <class T, class S>
__device__ __forceinline__ void start_scores(float (&s)[S::keys / 8][4], uint32_t q, uint32_t k) {
  const uint64_t a = swizzled_operand(q, 0), b = swizzled_operand(k, 0);
#pragma unroll
  for (int i = 0; i < (S::width + 15) / 16; ++i)
    Wgmma<T, S::keys>::template run<0, 0>(s, a + (i / 4 * S::rows * 128 + i % 4 * 32) / 16,
                                          b + (i / 4 * S::keys * 128 + i % 4 * 32) / 16, i > 0);
}

// o += w v
template <class T, class S>
__device__ __forceinline__ void start_values(float (&o)[S::width / 8][4],
                                             const uint32_t (&w)[S::keys / 16][4], uint32_t v,
                                             bool first) {
  const uint64_t b = swizzled_operand(v, S::keys * 128);
#pragma unroll
  for (int i = 0; i < S::keys / 16; ++i)
    Wgmma<T, S::width>::template run<1>(o, w[i], b + i * 16 * 128 / 16, i > 0 || !first);
}

// ---- the warpgroups that compute ---------------------------------------------------------------

template <class T, class S>
struct Sm90Consumer {
  const Sm90Params& p;
  const Sm90Memory<S>& m;
  int group, lane;
  RingAt<S::queries> q;
  RingAt<S::stages> k, v;
  RunningRows r;
  float o[1][S::width / 8][4];
  uint32_t w[2][S::keys / 16][4];

  __device__ __forceinline__ void release(uint32_t barrier) {
    if (lane == 0) barrier_arrive(barrier);
  }
  // Warpgroups issue products in turns.
  __device__ __forceinline__ void take_turn() { barrier_sync(1 + group, 256); }
  __device__ __forceinline__ void pass_turn() {
    barrier_come(1 + (group + 1 == S::groups ? 0 : group + 1), 256);
  }

  // The last block of keys, which may be cut.
  __device__ __forceinline__ void first_block(int count) {
    float s[S::keys / 8][4];
    barrier_wait(m.q_full(q.i), q.phase);
    barrier_wait(m.k_full(k.i), k.phase);
    wgmma_start();
    start_scores<T, S>(s, m.query(q.i) + group * 64 * 128, m.key(k.i));
    wgmma_submit();
    wgmma_finish<0>();
    settle(s);
    release(m.k_free(k.i));
    k.next();
    count -= lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < S::keys / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (8 * n + i % 2 >= count) s[n][i] = -INFINITY;
    r.highest[0] = r.highest[1] = -INFINITY;
    raise_highest<S::keys>(r, s, p.z.scale_log2);
    weigh_block<T, S::keys, 0>(w[0], s, p.z.scale_log2, r, r.sum);
  }

  // Adds the values of the weights w[At] and computes w[1 - At] of the next block.
  template <int At>
  __device__ __forceinline__ void step(bool first) {
    float s[S::keys / 8][4];
    barrier_wait(m.k_full(k.i), k.phase);
    take_turn();
    wgmma_start();
    start_scores<T, S>(s, m.query(q.i) + group * 64 * 128, m.key(k.i));
    wgmma_submit();
    barrier_wait(m.v_full(v.i), v.phase);
    wgmma_start();
    start_values<T, S>(o[0], w[At], m.value(v.i), first);
    wgmma_submit();
    pass_turn();
    wgmma_finish<1>();
    settle(s);
    release(m.k_free(k.i));
    k.next();
    float sum[2], factor[2] = {1, 1};
    bool raised = weigh_block<T, S::keys, S::poly>(w[1 - At], s, p.z.scale_log2, r, sum);
    raised = __any_sync(~0u, raised);
    if (raised) {
      const float before[2] = {r.highest[0], r.highest[1]};
      raise_highest<S::keys>(r, s, p.z.scale_log2);
      weigh_block<T, S::keys, 0>(w[1 - At], s, p.z.scale_log2, r, sum);
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        factor[h] = fast_exp2(before[h] - r.highest[h]);
        r.sum[h] *= factor[h];
      }
    }
    r.sum[0] += sum[0], r.sum[1] += sum[1];
    settle(w[1 - At]);
    wgmma_finish<0>();
    settle(o[0]);
    release(m.v_free(v.i));
    v.next();
    if (raised)
#pragma unroll
      for (int d = 0; d < S::width / 8; ++d)
#pragma unroll
        for (int i = 0; i < 4; ++i) o[0][d][i] *= factor[i / 2];
  }

  // Adds the values of the last weights.
  template <int At>
  __device__ __forceinline__ void last_values(bool first) {
    barrier_wait(m.v_full(v.i), v.phase);
    wgmma_start();
    start_values<T, S>(o[0], w[At], m.value(v.i), first);
    wgmma_submit();
    wgmma_finish<0>();
    settle(o[0]);
    release(m.v_free(v.i));
    v.next();
  }

  __device__ __forceinline__ void write(int head, int begin) {
    float factor[1][2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float sum = r.sum[h];
      sum += __shfl_xor_sync(~0u, sum, 1);
      sum += __shfl_xor_sync(~0u, sum, 2);
      factor[0][h] = 1 / sum;
      const int row = begin + 8 * h + lane / 4;
      if (lane % 4 == 0 && row < p.z.t)
        p.lse[int64_t{head} * p.z.t + row] = (r.highest[h] + log2f(sum)) * kLn2;
    }
    write_rows<T, 1, S::width>(rows_of<T>(p.z, p.o, head, p.z.t), begin, o, factor, lane);
  }

  __device__ __forceinline__ void run() {
    const int blocks = (p.z.s + S::keys - 1) / S::keys;
    const int tiles = p.z.heads * p.parts;
    if (group == S::groups - 1) pass_turn();
#pragma unroll 1
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
      first_block(p.z.s - (blocks - 1) * S::keys);
      int left = blocks - 1;
#pragma unroll 1
      for (; left > 1; left -= 2) {
        step<0>(left == blocks - 1);
        step<1>(false);
      }
      if (left == 1) step<0>(blocks == 2);
      release(m.q_free(q.i));
      q.next();
      if (left == 1)
        last_values<1>(false);
      else
        last_values<0>(blocks == 1);
      write(tile / p.parts, tile % p.parts * S::rows + group * 64 + threadIdx.x % 128 / 32 * 16);
    }
  }
};

// o and lse.
// grid: blocks of threads that share all tiles of queries.  sums: f32.  deterministic: yes.
template <class T, class S>
__global__ __launch_bounds__(S::threads,
                             1) void attention_sm90(const __grid_constant__ Sm90Params p) {
  begin();
  extern __shared__ __align__(1024) unsigned char memory[];
  Sm90Memory<S> m;
  m.q = (shared_address(memory) + 1023) / 1024 * 1024;
  m.k = m.q + S::queries * S::query_bytes;
  m.v = m.k + S::stages * S::block_bytes;
  m.barriers = m.v + S::stages * S::block_bytes;
  if (threadIdx.x == 0) {
#pragma unroll
    for (int i = 0; i < S::queries; ++i)
      barrier_init(m.q_full(i), 1), barrier_init(m.q_free(i), 4 * S::groups);
#pragma unroll
    for (int i = 0; i < S::stages; ++i) {
      barrier_init(m.k_full(i), 1), barrier_init(m.k_free(i), 4 * S::groups);
      barrier_init(m.v_full(i), 1), barrier_init(m.v_free(i), 4 * S::groups);
    }
    barrier_init_done();
  }
  __syncthreads();
  const int group = warpgroup();
  if (group == S::groups) {
    fewer_registers<S::groups == 3 ? 32 : 24>();
    if (threadIdx.x == 128 * S::groups) fetch_all<S>(p, m);
  } else {
    more_registers<S::registers>();
    Sm90Consumer<T, S> c{p, m, group, static_cast<int>(threadIdx.x % 32)};
    c.run();
  }
}

}  // namespace ebb::ops::cuda
