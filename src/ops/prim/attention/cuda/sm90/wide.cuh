// attention of heads up to 512 wide on wgmma (sm_90a), warp-specialised. A thread block owns 64
// queries: one warpgroup computes scores and softmax weights of a key block, while two others
// accumulate o (p v), 256 columns each, for the block before. A cluster of two thread blocks shares
// keys and values by multicast. Where there are too few queries to fill the device, the keys are
// split (split-KV), and a second kernel combines the partial results.
#pragma once

#include "backend/cuda/kit/pipeline.cuh"
#include "ops/prim/attention/cuda/sm90/softmax.cuh"

namespace ebb::ops::cuda {

// A split writes o not yet divided by row_sum, [split, head, query, width], and row_max and row_sum
// of each row, [split, head, query].
struct WideParams {
  CUtensorMap q, k, v;  // of rank 4: columns, rows, heads, samples; boxes of 64 columns
  ForwardParams f;      // query_blocks: query tiles per head, an even number
  float* o_partial;
  float2* row_stats;
  int splits;
};

struct WideShape {
  static constexpr int width = 512, queries = 64, keys = 128;  // per tile; per block
  static constexpr int threads = 512;                          // scores, 2 x output, producer
  static constexpr int boxes = width / 64;                     // of 64 columns
  static constexpr int stages = 4;                             // of keys, and of values
  static constexpr int stage_bytes =
      keys * 128;  // 64 columns of all keys; 256 columns of 32 values
  static constexpr int values = 32;
  static constexpr int query_bytes = queries * 128 * boxes, weight_bytes = queries * keys * 2;
  static constexpr int q = 0, k = q + query_bytes, v = k + stages * stage_bytes;
  static constexpr int weights = v + stages * stage_bytes;
  static constexpr int factors = weights + 2 * weight_bytes;  // rescaling factors of the rows
  static constexpr int needs_rescale =
      factors + 2 * queries * 4;  // per warp: factors are not all 1
  static constexpr int barriers = needs_rescale + 2 * 4 * 4;
  static constexpr int bytes = 1024 + barriers + 8 * (4 * stages + 5);
  static_assert(bytes <= 227 * 1024 && stage_bytes == values * 256 * 2);
};

// Shared memory addresses.
struct WideMemory {
  uint32_t at;
  using S = WideShape;

  __device__ uint32_t key(int i) const { return at + S::k + i * S::stage_bytes; }
  __device__ uint32_t value(int i) const { return at + S::v + i * S::stage_bytes; }
  __device__ uint32_t weight(int i) const { return at + S::weights + i * S::weight_bytes; }
  __device__ Pipeline<S::stages> keys() const { return {at + S::barriers}; }
  __device__ Pipeline<S::stages> values() const { return {at + S::barriers, 2 * S::stages}; }
  __device__ Pipeline<2> weights() const { return {at + S::barriers, 4 * S::stages}; }
  __device__ uint32_t q_full() const { return at + S::barriers + 8 * (4 * S::stages + 4); }
};

// The work unit of a thread block.
struct WideTile {
  int head, split, first_row;
  int begin, end;  // key blocks
};
__device__ __forceinline__ WideTile wide_tile(const WideParams& p) {
  const int index = blockIdx.x / p.f.query_blocks;
  const int blocks = (p.f.z.s + WideShape::keys - 1) / WideShape::keys;
  WideTile t;
  t.head = index / p.splits;
  t.split = index % p.splits;
  t.first_row = blockIdx.x % p.f.query_blocks * WideShape::queries;
  t.begin = t.split * blocks / p.splits;
  t.end = (t.split + 1) * blocks / p.splits;
  return t;
}

// ---- producer warps ----------------------------------------------------------------------------

// Each thread block of the cluster loads one half of all keys and values for both.
struct WideProducer {
  const WideParams& p;
  const WideMemory m;
  const WideTile t;
  int rank;  // in the cluster
  using S = WideShape;
  static constexpr uint16_t both = 3;  // thread blocks of the cluster

  __device__ __forceinline__ BoxAt queries_at(int column, int row) const {
    return {column, row, t.head % p.f.z.a, t.head / p.f.z.a};
  }
  __device__ __forceinline__ BoxAt keys_at(int column, int row) const {
    return {column, row, key_head(p.f.z, t.head), t.head / p.f.z.a};
  }
  __device__ __forceinline__ void keys() const {
    barrier_expect(m.q_full(), S::query_bytes);
#pragma unroll 1
    for (int c = 0; c < S::boxes; ++c)
      load_box4(m.at + S::q + c * S::queries * 128, m.q_full(), p.q,
                queries_at(c * 64, t.first_row));
    constexpr int half = S::keys / 2;
    int use = 0;
#pragma unroll 1
    for (int j = t.begin; j < t.end; ++j)
#pragma unroll 1
      for (int c = 0; c < S::boxes; ++c, ++use) {
        const int i = use % S::stages;
        barrier_wait(m.keys().empty(i), (use / S::stages & 1) ^ 1);
        barrier_expect(m.keys().full(i), S::stage_bytes);
        load_box4_multicast({m.key(i) + rank * half * 128, m.keys().full(i), both}, p.k,
                            keys_at(c * 64, j * S::keys + rank * half));
      }
  }
  __device__ __forceinline__ void values() const {
    int use = 0;
#pragma unroll 1
    for (int row = t.begin * S::keys; row < t.end * S::keys; row += S::values)
#pragma unroll 1
      for (int side = 0; side < 2; ++side, ++use) {
        const int i = use % S::stages;
        barrier_wait(m.values().empty(i), (use / S::stages & 1) ^ 1);
        barrier_expect(m.values().full(i), S::stage_bytes);
#pragma unroll
        for (int c = 2 * rank; c < 2 * rank + 2; ++c)
          load_box4_multicast({m.value(i) + c * S::values * 128, m.values().full(i), both}, p.v,
                              keys_at(side * 256 + c * 64, row));
      }
  }
};

// A stage is free when both thread blocks of the cluster have released it.
__device__ __forceinline__ void release_in_both(uint32_t barrier) {
  if (threadIdx.x % 32 == 0) {
    barrier_arrive_at(barrier, 0);
    barrier_arrive_at(barrier, 1);
  }
}

// ---- score warpgroup ---------------------------------------------------------------------------

template <class T>
struct WideScores {
  const WideParams& p;
  const WideMemory m;
  const WideTile t;
  unsigned char* memory;
  int lane, warp;
  OnlineSoftmax r;
  using S = WideShape;

  // A key block fills every stage exactly twice, so the stage and phase of each use are constants.
  __device__ __forceinline__ void gemm(float (&s)[S::keys / 8][4]) const {
    static_assert(S::boxes == 2 * S::stages);
    const uint64_t q = swizzled_operand(m.at + S::q, 0);
#pragma unroll
    for (int c = 0; c < S::boxes; ++c) {
      m.keys().consumer_wait(pipeline_state<S::stages>(c));
      wgmma_fence();
      const uint64_t k = swizzled_operand(m.key(c % S::stages), 0);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        wgmma<T, 0, 0>(s, q + (c * S::queries * 128 + i * 32) / 16, k + i * 32 / 16, c + i > 0);
      wgmma_commit();
      if (c == 0) continue;
      wgmma_wait<1>();
      release_in_both(m.keys().empty((c - 1) % S::stages));
    }
    wgmma_wait<0>();
    fence_accumulators(s);
    release_in_both(m.keys().empty((S::boxes - 1) % S::stages));
  }

  // Updates row_max where scores exceed it by more than 2^8, as `online_softmax` does. Returns
  // whether it changed, and the factors to rescale o and row_sum by.
  __device__ __forceinline__ bool rescale(const float (&s)[S::keys / 8][4], float (&factor)[2]) {
    constexpr float slack = 8;
    float top[2];
    bool grown = false;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float v[2] = {s[0][2 * h], s[0][2 * h + 1]};
#pragma unroll
      for (int n = 1; n < S::keys / 8; ++n)
        v[0] = fmaxf(v[0], s[n][2 * h]), v[1] = fmaxf(v[1], s[n][2 * h + 1]);
      top[h] = fmaxf(v[0], v[1]) * p.f.z.scale_log2;
      grown |= top[h] > r.row_max[h] + slack;
      factor[h] = 1;
    }
    if (!__any_sync(~0u, grown)) return false;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float v = fmaxf(quad_max(top[h]), r.row_max[h]);
      if (v != r.row_max[h]) factor[h] = fast_exp2(r.row_max[h] - v);
      r.row_max[h] = v;
      r.row_sum[h] *= factor[h];
    }
    return true;
  }

  __device__ __forceinline__ void store_factors(int slot, bool any,
                                                const float (&factor)[2]) const {
    auto* const factors = reinterpret_cast<float*>(memory + S::factors) + slot * S::queries;
    if (any && lane % 4 == 0)
#pragma unroll
      for (int h = 0; h < 2; ++h) factors[warp * 16 + 8 * h + lane / 4] = factor[h];
    if (lane == 0) reinterpret_cast<int*>(memory + S::needs_rescale)[slot * 4 + warp] = any;
  }
  // Writes the weights as the A operand of the p v GEMM: rows are queries, boxes of 64 keys.
  __device__ __forceinline__ void store_weights(int slot,
                                                const uint32_t (&w)[S::keys / 16][4]) const {
#pragma unroll
    for (int k = 0; k < S::keys / 16; ++k)
      store_columns<S::queries * 128>(m.weight(slot), 16 * k, w[k]);
    fence_async();
  }

  __device__ __forceinline__ void run() {
    float s[S::keys / 8][4];
    uint32_t w[S::keys / 16][4];
    r = {{-INFINITY, -INFINITY}, {0, 0}};
    barrier_wait(m.q_full(), 0);
    int use = 0;
#pragma unroll 1
    for (int j = t.begin; j < t.end; ++j, ++use) {
      gemm(s);
      const int count = p.f.z.s - j * S::keys, slot = use & 1;
      if (count < S::keys) mask_columns(s, count, lane);
      float factor[2];
      const bool any = rescale(s, factor);
      exp_scores_packed<T>(w, s, p.f.z.scale_log2, r);
      barrier_wait(m.weights().empty(slot), (use >> 1 & 1) ^ 1);
      store_factors(slot, any, factor);
      store_weights(slot, w);
      barrier_arrive(m.weights().full(slot));
    }
    finish(use);
  }
  // Final factors (1 / row_sum) and lse; for splits, the statistics that the combine kernel needs.
  __device__ __forceinline__ void finish(int use) const {
    float factor[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float sum = quad_sum(r.row_sum[h]);
      factor[h] = p.splits > 1 ? 1.f : 1 / sum;
      const int row = t.first_row + warp * 16 + 8 * h + lane / 4;
      if (lane % 4 != 0 || row >= p.f.z.t) continue;
      const int64_t at = int64_t{t.head} * p.f.z.t + row;
      if (p.splits > 1)
        p.row_stats[t.split * p.f.z.heads * p.f.z.t + at] = {r.row_max[h], sum};
      else
        p.f.lse[at] = (r.row_max[h] + log2f(sum)) * kLn2;
    }
    const int slot = use & 1;
    barrier_wait(m.weights().empty(slot), (use >> 1 & 1) ^ 1);
    store_factors(slot, true, factor);
    barrier_arrive(m.weights().full(slot));
  }
};

// ---- output warpgroups -------------------------------------------------------------------------

template <class T>
struct WideOutput {
  const WideParams& p;
  const WideMemory m;
  const WideTile t;
  unsigned char* memory;
  int lane, warp, side;  // side: which 256 columns
  float o[2][16][4];     // two times 128: wider MMAs need more registers at launch
  using S = WideShape;

  __device__ __forceinline__ void multiply_rows(int slot) {
    const auto* const factors =
        reinterpret_cast<const float*>(memory + S::factors) + slot * S::queries + warp * 16;
    const float f[2] = {factors[lane / 4], factors[8 + lane / 4]};
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int n = 0; n < 16; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) o[half][n][i] *= f[i / 2];
  }
  // o += p v of a key block, whose values fill this side's two stages twice.
  __device__ __forceinline__ void add(int slot, bool first) {
    constexpr int steps = S::keys / S::values;
    static_assert(2 * steps == 2 * S::stages);
#pragma unroll
    for (int c = 0; c < steps; ++c) {
      const int stage = c % 2 * 2 + side;
      barrier_wait(m.values().full(stage), c / 2);
      wgmma_fence();
#pragma unroll
      for (int i = 0; i < S::values / 16; ++i) {
        const int k = c * (S::values / 16) + i;
        const uint64_t w =
            swizzled_operand(m.weight(slot) + k / 4 * S::queries * 128 + k % 4 * 32, 0);
#pragma unroll
        for (int half = 0; half < 2; ++half)
          wgmma<T, 0, 1>(o[half], w,
                         swizzled_operand(m.value(stage) + half * 2 * S::values * 128 + i * 2048,
                                          S::values * 128),
                         !first || k > 0);
      }
      wgmma_commit();
      if (c == 0) continue;
      wgmma_wait<1>();
      release_in_both(m.values().empty((c - 1) % 2 * 2 + side));
    }
    wgmma_wait<0>();
    fence_accumulators(o[0]);
    fence_accumulators(o[1]);
    release_in_both(m.values().empty((steps - 1) % 2 * 2 + side));
    __syncwarp();  // every lane has read its factors
    if (lane == 0) barrier_arrive(m.weights().empty(slot));
  }
  __device__ __forceinline__ bool needs_rescale(int slot) const {
    return reinterpret_cast<const volatile int*>(memory + S::needs_rescale)[slot * 4 + warp] != 0;
  }

  __device__ __forceinline__ void run() {
    int use = 0;
#pragma unroll 1
    for (int j = t.begin; j < t.end; ++j, ++use) {
      barrier_wait(m.weights().full(use & 1), use >> 1 & 1);
      if (use > 0 && needs_rescale(use & 1)) multiply_rows(use & 1);
      add(use & 1, use == 0);
    }
    barrier_wait(m.weights().full(use & 1), use >> 1 & 1);
    if (p.splits > 1) return store_partial();
    multiply_rows(use & 1);
    Rows<T> to = rows_of<T>(p.f.z, p.f.z.o, p.f.o, t.head, p.f.z.t);
    to.first += side * 256, to.width -= side * 256;
    constexpr float one[1][2] = {{1, 1}};
    using Half = const float(&)[1][16][4];
    write_rows<T, 1, 128>(to, t.first_row + warp * 16, reinterpret_cast<Half>(o[0]), one, lane);
    to.first += 128, to.width -= 128;
    write_rows<T, 1, 128>(to, t.first_row + warp * 16, reinterpret_cast<Half>(o[1]), one, lane);
  }
  // Partial o of a split.
  __device__ __forceinline__ void store_partial() const {
    const HeadSizes& z = p.f.z;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = t.first_row + warp * 16 + 8 * h + lane / 4;
      if (row >= z.t) continue;
      const int64_t at = (t.split * z.heads + t.head) * z.t + row;
      float* const to = p.o_partial + at * z.width + side * 256 + lane % 4 * 2;
#pragma unroll
      for (int n = 0; n < 32; ++n)
        if (side * 256 + 8 * n < z.width)
          *reinterpret_cast<float2*>(to + 8 * n) = {o[n / 16][n % 16][2 * h],
                                                    o[n / 16][n % 16][2 * h + 1]};
    }
  }
};

// o and lse, or partial results of splits.
// grid: one thread block per query tile and split; clusters of two.  sums: f32.
// deterministic: yes.
template <class T>
__global__ __launch_bounds__(WideShape::threads,
                             1) void attention_sm90_wide(const __grid_constant__ WideParams p) {
  begin();
  using S = WideShape;
  extern __shared__ __align__(1024) unsigned char memory[];
  const uint32_t base = shared_address(memory);
  const WideMemory m{(base + 1023) / 1024 * 1024};
  unsigned char* const aligned = memory + (m.at - base);
  if (threadIdx.x == 0) {
    constexpr int warps = 4;
    for (int i = 0; i < S::stages; ++i) {
      m.keys().init(i, 1, 2 * warps);
      m.values().init(i, 1, 2 * warps);
    }
    for (int i = 0; i < 2; ++i) m.weights().init(i, 32 * warps, 2 * warps);
    barrier_init(m.q_full(), 1);
    barrier_init_done();
  }
  cluster_sync();
  const int group = warpgroup(), lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const WideTile t = wide_tile(p);
  // The other thread block of the cluster may still multicast into this one, hence cluster_sync at
  // the end. Each role ends separately and runs in a loop of one iteration: otherwise ptxas 13.0
  // ignores setmaxnreg's register budget.
  if (group == 3) {
    fewer_registers<24>();
    const WideProducer loader{p, m, t, static_cast<int>(cluster_rank())};
    if (threadIdx.x == 384) loader.keys();
    if (threadIdx.x == 416) loader.values();
    __syncwarp();
    cluster_sync();
  } else if (group == 0) {
    more_registers<152>();
    WideScores<T> scores{p, m, t, aligned, lane, warp};
    for (unsigned i = blockIdx.x; i < gridDim.x; i += gridDim.x) scores.run();
    cluster_sync();
  } else {
    more_registers<168>();
    WideOutput<T> sums{p, m, t, aligned, lane, warp, group - 1};
    for (unsigned i = blockIdx.x; i < gridDim.x; i += gridDim.x) sums.run();
    cluster_sync();
  }
}

// Combines splits: 8 columns of a row per thread.
// grid: covers heads * t rows of width / 8 threads.  sums: f32.  deterministic: yes.
template <class T>
__global__ __launch_bounds__(256) void attention_sm90_wide_combine(
    const __grid_constant__ WideParams p) {
  begin();
  const HeadSizes& z = p.f.z;
  const int groups = z.width / 8;
  const int64_t i = int64_t{blockIdx.x} * 256 + threadIdx.x, row = i / groups;
  const int column = static_cast<int>(i % groups) * 8;
  const int64_t rows = z.heads * z.t;
  if (row >= rows) return;
  float row_max = -INFINITY, sum = 0, x[8] = {};
  for (int r = 0; r < p.splits; ++r) row_max = fmaxf(row_max, p.row_stats[r * rows + row].x);
  for (int r = 0; r < p.splits; ++r) {
    const float2 of = p.row_stats[r * rows + row];
    const float factor = fast_exp2(of.x - row_max);
    sum = fmaf(of.y, factor, sum);
    const auto* const from =
        reinterpret_cast<const float4*>(p.o_partial + (r * rows + row) * z.width + column);
    const float4 a = from[0], b = from[1];
    const float v[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
    for (int j = 0; j < 8; ++j) x[j] = fmaf(v[j], factor, x[j]);
  }
  const float factor = 1 / sum;
  Vec<T, 8> out;
#pragma unroll
  for (int j = 0; j < 8; ++j) out.v[j] = from_float<T>(x[j] * factor);
  const int head = static_cast<int>(row / z.t);
  const Rows<T> to = rows_of<T>(z, z.o, p.f.o, head, z.t);
  T* const at = const_cast<T*>(to.first) + row % z.t * to.row_stride + column;
  *reinterpret_cast<Vec<T, 8>*>(at) = out;
  if (column == 0) p.f.lse[row] = (row_max + log2f(sum)) * kLn2;
}

}  // namespace ebb::ops::cuda
