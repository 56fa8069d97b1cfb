// attention on wgmma (sm_90a), warp-specialised and persistent (Shah et al. 2024,
// FlashAttention-3): a producer warp loads blocks of keys and values by TMA. Each consumer
// warpgroup owns 64 queries of a tile and overlaps the scores of a block (q k^T) with the p v GEMM
// of the block before. Work units are software-pipelined too: the first scores of a unit overlap
// the last p v of the one before.
#pragma once

#include "backend/cuda/kit/pipeline.cuh"
#include "ops/prim/attention/cuda/sm90/softmax.cuh"
#include "ops/prim/attention/cuda/sm90/split_kv.cuh"

namespace ebb::ops::cuda {

// Heads up to D wide, `Keys` keys per block, `Groups` consumer warpgroups of 64 queries each.
// SplitKv: tiles may be split along the keys. Masked: with the mask p.f.mask, which has no bias;
// key blocks are visited in ascending order, since every row that attends to anything attends to
// the first one.
template <int D, int Keys, int Groups, bool SplitKv = false, bool Masked = false>
struct Sm90Shape {
  static constexpr bool split_kv = SplitKv, masked = Masked;
  static_assert(!(SplitKv && Masked));
  static constexpr int width = D, keys = Keys, groups = Groups;
  static constexpr int threads = 128 * (groups + 1);
  static constexpr int rows = 64 * groups;
  // TMA boxes of 64 columns, 128 bytes a row, and a tail box of 16 where that covers the rest: a
  // wide box takes its full time even where most of it lies outside of the head.
  static constexpr bool tail = ColumnBoxes<D>::tail;
  static constexpr int boxes = ColumnBoxes<D>::boxes;
  static constexpr int row_bytes = 128 * boxes + (tail ? 32 : 0);
  static constexpr int query_bytes = rows * row_bytes;
  static constexpr int block_bytes = (keys * row_bytes + 1023) / 1024 * 1024;
  // With a tail, o is stored by TMA through shared memory: direct stores of rows of 144 or 160
  // bytes fill few sectors. Without a tail direct stores are faster.
  static constexpr int store_bytes = tail ? query_bytes : 0;
  static constexpr int smem_limit = 226 * 1024 - store_bytes;
  static constexpr int query_stages = 2 * query_bytes + 4 * block_bytes <= smem_limit ? 2 : 1;
  static constexpr int fit = (smem_limit - query_stages * query_bytes) / (2 * block_bytes);
  static constexpr int stages = fit < 4 ? fit : 4;
  static constexpr int barriers = 2 * query_stages + 4 * stages;
  static constexpr int bytes =
      1024 + query_stages * query_bytes + 2 * stages * block_bytes + store_bytes + 8 * barriers;
  static constexpr int consumer_registers = groups == 3 ? 160 : 240,
                       producer_registers = groups == 3 ? 32 : 24;
  static_assert(stages >= 2 && bytes <= 227 * 1024 && Keys % 16 == 0);
};

// Shared memory layout. Queries: a warpgroup's 64 rows, box after box, then the next warpgroup's;
// keys and values: box after box.
template <class S>
struct Sm90Memory {
  uint32_t q, k, v, o, barriers;

  __device__ uint32_t query(int i) const { return q + i * S::query_bytes; }
  __device__ uint32_t key(int i) const { return k + i * S::block_bytes; }
  __device__ uint32_t value(int i) const { return v + i * S::block_bytes; }
  __device__ Pipeline<S::query_stages> queries() const { return {barriers}; }
  __device__ Pipeline<S::stages> keys() const { return {barriers, 2 * S::query_stages}; }
  __device__ Pipeline<S::stages> values() const {
    return {barriers, 2 * S::query_stages + 2 * S::stages};
  }
};

// ---- producer warp -----------------------------------------------------------------------------

// TMA loads of `Tiles` tiles of `Rows` rows.
template <class S, int Tiles, int Rows>
struct LoadTiles {
  // Rows from `row` on of a head.
  __device__ static __forceinline__ void run(uint32_t to, uint32_t barrier, const CUtensorMap& map,
                                             const CUtensorMap& tail, const int3& at) {
    barrier_expect(barrier, Tiles * Rows * S::row_bytes);
#pragma unroll
    for (int i = 0; i < Tiles; ++i) {
      const uint32_t tile = to + i * Rows * S::row_bytes;
      const int row = at.x + i * Rows;
#pragma unroll
      for (int c = 0; c < S::boxes; ++c)
        load_box4(tile + c * Rows * 128, barrier, map, {c * 64, row, at.y, at.z});
      if constexpr (S::tail)
        load_box4(tile + S::boxes * Rows * 128, barrier, tail, {S::boxes * 64, row, at.y, at.z});
    }
  }
};

template <class S>
struct Sm90Producer {
  const Sm90Params& p;
  const Sm90Memory<S>& m;
  PipelineState<S::query_stages> q;
  PipelineState<S::stages> k, v;

  __device__ __forceinline__ int3 coordinates(int row, int head) const {
    return {row, head % p.f.z.a, head / p.f.z.a};
  }
  __device__ __forceinline__ void queries(int tile) {
    m.queries().producer_acquire(q);
    LoadTiles<S, S::groups, 64>::run(
        m.query(q.index), m.queries().full(q.index), p.q, p.q_tail,
        coordinates(tile % p.f.query_blocks * S::rows, tile / p.f.query_blocks));
    q.advance();
  }
  // Key block j of a unit, in descending order; masked units count from their end.
  __device__ __forceinline__ int3 block(int j, const WorkUnit& u) const {
    const int head = u.tile / p.f.query_blocks;
    return {(S::masked ? u.end - 1 - j : j) * S::keys, key_head(p.f.z, head), head / p.f.z.a};
  }
  __device__ __forceinline__ void keys(int j, const WorkUnit& u) {
    m.keys().producer_acquire(k);
    LoadTiles<S, 1, S::keys>::run(m.key(k.index), m.keys().full(k.index), p.k, p.k_tail,
                                  block(j, u));
    k.advance();
  }
  __device__ __forceinline__ void values(int j, const WorkUnit& u) {
    m.values().producer_acquire(v);
    LoadTiles<S, 1, S::keys>::run(m.value(v.index), m.values().full(v.index), p.v, p.v_tail,
                                  block(j, u));
    v.advance();
  }
  // In the order of use: keys of a block, then values of the previous block.
  __device__ __forceinline__ void run(int blocks) {
    const int step = gridDim.x;
    WorkUnit u = work_unit<S>(p, blocks, blockIdx.x);
    queries(u.tile);
    keys(u.end - 1, u);
#pragma unroll 1
    for (int i = blockIdx.x; i < p.work_units; i += step) {
#pragma unroll 1
      for (int j = u.end - 1; j > u.begin; --j) {
        keys(j - 1, u);
        values(j, u);
      }
      const WorkUnit next = work_unit<S>(p, blocks, i + step);
      if (i + step < p.work_units) {
        queries(next.tile);
        keys(next.end - 1, next);
      }
      values(u.begin, u);
      u = next;
    }
  }
};

// ---- consumer warpgroups -----------------------------------------------------------------------

template <class T, class S>
struct Sm90Consumer {
  const Sm90Params& p;
  const Sm90Memory<S>& m;
  int group, lane, blocks;
  int i;                    // current work unit
  bool overflowed = false;  // a row sum passed kMaxRowSum
  RowLimits limits = {};    // of a masked unit
  PipelineState<S::query_stages> q;
  PipelineState<S::stages> k, v;
  OnlineSoftmax r;
  float o[1][S::width / 8][4];
  uint32_t w[2][S::keys / 16][4];

  __device__ __forceinline__ void release(uint32_t barrier) {
    if (lane == 0) barrier_arrive(barrier);
  }
  // Warp scheduler barrier: warpgroups issue their GEMMs in round-robin order, so that the softmax
  // of one overlaps the GEMMs of another.
  __device__ __forceinline__ void scheduler_barrier_sync() { named_barrier_sync(1 + group, 256); }
  __device__ __forceinline__ void scheduler_barrier_arrive() {
    named_barrier_arrive(1 + (group + 1 == S::groups ? 0 : group + 1), 256);
  }
  __device__ __forceinline__ uint32_t own_queries() const {
    return m.query(q.index) + group * 64 * S::row_bytes;
  }
  __device__ __forceinline__ int first_row(int of) const {
    return of % p.f.query_blocks * S::rows + group * 64 + threadIdx.x % 128 / 32 * 16;
  }

  __device__ __forceinline__ void start_block(float (&s)[S::keys / 8][4]) {
    wgmma_fence();
    start_scores<T, S::width, S::keys>(s, own_queries(), m.key(k.index));
    wgmma_commit();
  }
  __device__ __forceinline__ void end_block(float (&s)[S::keys / 8][4]) {
    fence_accumulators(s);
    release(m.keys().empty(k.index));
    k.advance();
  }
  __device__ __forceinline__ void start_sum(const uint32_t (&weights)[S::keys / 16][4],
                                            bool first) {
    m.values().consumer_wait(v);
    wgmma_fence();
    start_values<T, S::width, S::keys>(o[0], weights, m.value(v.index), first);
    wgmma_commit();
  }
  __device__ __forceinline__ void end_sum() {
    wgmma_wait<0>();
    fence_accumulators(o[0]);
    release(m.values().empty(v.index));
    v.advance();
  }
  // Initialises the softmax from a unit's first block: the last key block, which may be partial; if
  // masked, the first one.
  __device__ __forceinline__ void begin_unit(float (&s)[S::keys / 8][4], const WorkUnit& u) {
    if constexpr (S::masked) {
      const HeadMask mask(p.f.z, p.f.mask, u.tile / p.f.query_blocks);
      limits = {mask.count, first_row(u.tile) + mask.p.diagonal};
      apply_mask(s, 0);
    } else {
      const int count = p.f.z.s - (u.end - 1) * S::keys;
      if (count < S::keys) mask_columns(s, count, lane);
    }
    init_row_max<S::keys>(r, s, p.f.z.scale_log2);
    if constexpr (S::masked) bound_row_max(r);
    exp_scores(s, p.f.z.scale_log2, r);
  }

  // Applies the mask to the scores of block `block` of a masked unit.
  __device__ __forceinline__ void apply_mask(float (&s)[S::keys / 8][4], int block) {
    const int begin = block * S::keys;
    if (limits.of(0) >= begin + S::keys)
      return;  // the warp's first row has the fewest visible keys
    const int row = lane / 4;
    const int ends[2] = {limits.of(row) - begin, limits.of(row + 8) - begin};
    mask_scores_beyond(s, ends, lane);
  }

  // o += w[At] v, overlapped with the scores and weights w[1 - At] of the next block, which has the
  // number `block` if the unit is masked.
  template <int At>
  __device__ __forceinline__ void step(bool first, int block) {
    float s[S::keys / 8][4];
    m.keys().consumer_wait(k);
    scheduler_barrier_sync();
    start_block(s);
    start_sum(w[At], first);
    scheduler_barrier_arrive();
    wgmma_wait<1>();
    end_block(s);
    if constexpr (S::masked) apply_mask(s, block);
    exp_scores_packed<T>(w[1 - At], s, p.f.z.scale_log2, r);
    fence_accumulators(w[1 - At]);
    end_sum();
  }
  // Finishes a unit, whose last weights are w[At], and computes w[0] of the next unit's first
  // block.
  template <int At>
  __device__ __forceinline__ void next_unit(bool first) {
    float s[S::keys / 8][4];
    release(m.queries().empty(q.index));
    q.advance();
    m.queries().consumer_wait(q);
    m.keys().consumer_wait(k);
    scheduler_barrier_sync();
    start_block(s);
    start_sum(w[At], first);
    scheduler_barrier_arrive();
    wgmma_wait<1>();
    end_block(s);
    const OnlineSoftmax done = r;
    begin_unit(s, work_unit<S>(p, blocks, i + gridDim.x));
    end_sum();
    pack_weights<T, S::keys>(w[0], s);
    fence_accumulators(w[0]);
    write(done);
  }
  // Finishes the last unit.
  template <int At>
  __device__ __forceinline__ void last_unit(bool first) {
    start_sum(w[At], first);
    end_sum();
    write(r);
  }
  template <int At>
  __device__ __forceinline__ bool finish_unit(bool first) {
    if (i + static_cast<int>(gridDim.x) >= p.work_units) {
      last_unit<At>(first);
      return false;
    }
    next_unit<At>(first);
    i += gridDim.x;
    return true;
  }

  // Writes o and lse of a unit. Rows whose sum passed the limit get lse = NaN until they are
  // recomputed.
  __device__ __forceinline__ void write(const OnlineSoftmax& done) {
    const WorkUnit u = work_unit<S>(p, blocks, i);
    if (u.split >= 0) {
      overflowed |= !store_partial<S::width, S::groups>(p, u.split, group, o[0], done.row_max,
                                                        done.row_sum, kMaxRowSum<T>);
      return;
    }
    const int tile = u.tile, head = tile / p.f.query_blocks, begin = first_row(tile);
    float factor[1][2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float sum = quad_sum(done.row_sum[h]);
      const bool masked_row = S::masked && sum == 0;  // fully masked
      factor[0][h] = masked_row ? 0 : __fdividef(1, sum);
      const bool in_range = sum <= kMaxRowSum<T>;
      const int row = begin + 8 * h + lane / 4;
      if (lane % 4 == 0 && row < p.f.z.t)
        p.f.lse[int64_t{head} * p.f.z.t + row] = masked_row ? 0
                                                 : in_range
                                                     ? (done.row_max[h] + __log2f(sum)) * kLn2
                                                     : NAN;
      overflowed |= !in_range;
    }
    if constexpr (S::tail)
      store(tile, factor[0]);
    else
      write_rows<T, 1, S::width>(rows_of<T>(p.f.z, p.f.z.o, p.f.o, head, p.f.z.t), begin, o, factor,
                                 lane);
  }

  // Stores o, scaled by row, through shared memory.
  __device__ __forceinline__ void store(int tile, const float (&factor)[2]) {
    const uint32_t at = m.o + group * 64 * S::row_bytes;
    const int barrier = 1 + S::groups + group, row = threadIdx.x % 128 / 32 * 16 + lane % 16;
    if (threadIdx.x % 128 == 0) store_wait_read<0>();
    named_barrier_sync(barrier, 128);  // the previous tile's store has read it
#pragma unroll
    for (int n = 0; n < S::width / 8; n += 2) {
      uint32_t x[4];
      pack_columns<T>(x, o[0], n, factor);
      if (n / 8 < S::boxes)
        store_columns<64 * 128>(at, 8 * n, x);
      else
        store_matrices(at + S::boxes * 64 * 128 + row * 32 + (lane / 16 ^ (row / 4 & 1)) * 16, x);
    }
    fence_async();
    named_barrier_sync(barrier, 128);
    if (threadIdx.x % 128 != 0) return;
    const int head = tile / p.f.query_blocks;
    const BoxAt to{0, tile % p.f.query_blocks * S::rows + group * 64, head % p.f.z.a,
                   head / p.f.z.a};
#pragma unroll
    for (int c = 0; c < S::boxes; ++c)
      store_box(p.o, at + c * 64 * 128, {c * 64, to.y, to.z, to.w});
    store_box(p.o_tail, at + S::boxes * 64 * 128, {S::boxes * 64, to.y, to.z, to.w});
  }

  // Recomputes the rows whose sum passed kMaxRowSum.
  __device__ __forceinline__ void recompute_overflowed() {
    for (int unit = blockIdx.x; unit < p.work_units; unit += gridDim.x) {
      const WorkUnit u = work_unit<S>(p, blocks, unit);
      const int head = u.tile / p.f.query_blocks, begin = first_row(u.tile);
      const int of_warp = lane % 4 * 8 + lane / 4, row = begin + of_warp;
      bool bad = false;
      if (u.split >= 0 && lane % 4 < 2)
        bad = !(p.row_stats[u.split * S::rows + group * 64 + row % 64 / 16 * 16 + of_warp].y <=
                kMaxRowSum<T>);
      else if (lane % 4 < 2 && row < p.f.z.t)
        bad = !(p.f.lse[int64_t{head} * p.f.z.t + row] < INFINITY);
      if (!any_of_threads(bad, 1 + group, 128)) continue;
      const FallbackKeys keys{u.begin * S::keys, min(u.end * S::keys, p.f.z.s),
                              m.q + group * (S::query_stages * S::query_bytes / S::groups),
                              1 + group};
      RowState<1, S::width> recomputed;
      recompute_rows_online<T, S::width, S::masked>(recomputed, p.f, head, begin, keys);
      if (u.split < 0)
        finish<T>(p.f, recomputed, head, begin, lane);
      else
        store_partial<S::width, S::groups>(p, u.split, group, recomputed.o[0],
                                           recomputed.row_max[0], recomputed.row_sum[0], INFINITY);
    }
  }

  __device__ __forceinline__ void run() {
    {
      float s[S::keys / 8][4];
      barrier_wait(m.queries().full(0), 0);
      barrier_wait(m.keys().full(0), 0);
      start_block(s);
      wgmma_wait<0>();
      end_block(s);
      begin_unit(s, work_unit<S>(p, blocks, i));
      pack_weights<T, S::keys>(w[0], s);
    }
    if (group == S::groups - 1) scheduler_barrier_arrive();
    bool more = true;
#pragma unroll 1
    while (more) {
      const WorkUnit u = work_unit<S>(p, blocks, i);
      const int all = u.end - u.begin;
      int left = all - 1;
#pragma unroll 1
      for (; left > 1; left -= 2) {
        step<0>(left == all - 1, all - left);
        step<1>(false, all - left + 1);
      }
      if (left == 1) {
        step<0>(all == 2, all - 1);
        more = finish_unit<1>(false);
      } else {
        more = finish_unit<0>(all == 1);
      }
    }
    if (group == 0) scheduler_barrier_sync();  // pairs with the last arrive
    if (S::tail && threadIdx.x % 128 == 0) store_wait();
    if (any_of_threads(overflowed, 1 + group, 128)) recompute_overflowed();
  }
};

// o and lse.
// grid: persistent thread blocks, at most one per work unit.
// sums: f32.  deterministic: yes.
template <class T, class S>
__global__ __launch_bounds__(S::threads,
                             1) void attention_sm90(const __grid_constant__ Sm90Params p) {
  begin();
  extern __shared__ __align__(1024) unsigned char memory[];
  Sm90Memory<S> m;
  m.q = (shared_address(memory) + 1023) / 1024 * 1024;
  m.k = m.q + S::query_stages * S::query_bytes;
  m.v = m.k + S::stages * S::block_bytes;
  m.o = m.v + S::stages * S::block_bytes;
  m.barriers = m.o + S::store_bytes;
  if (threadIdx.x == 0) {
#pragma unroll
    for (int i = 0; i < S::query_stages; ++i) m.queries().init(i, 1, 4 * S::groups);
#pragma unroll
    for (int i = 0; i < S::stages; ++i) {
      m.keys().init(i, 1, 4 * S::groups);
      m.values().init(i, 1, 4 * S::groups);
    }
    barrier_init_done();
  }
  __syncthreads();
  const int group = warpgroup();
  const int blocks = (p.f.z.s + S::keys - 1) / S::keys;
  if (group == S::groups) {
    fewer_registers<S::producer_registers>();
    if (threadIdx.x == 128 * S::groups) Sm90Producer<S>{p, m}.run(blocks);
  } else {
    more_registers<S::consumer_registers>();
    Sm90Consumer<T, S> c{
        p, m, group, static_cast<int>(threadIdx.x % 32), blocks, static_cast<int>(blockIdx.x)};
    // A loop of one iteration: outside of loops ptxas 13.0 ignores setmaxnreg's register budget.
    for (int i = blockIdx.x; i < p.work_units; i += p.work_units) c.run();
  }
}

}  // namespace ebb::ops::cuda
