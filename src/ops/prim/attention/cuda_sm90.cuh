// attention on wgmma (sm_90a): one warp fetches blocks of keys and values by TMA, each of the other
// warpgroups owns 64 queries of a tile and computes the scores of a block while the values of the
// one before are added up (Shah et al. 2024, FlashAttention-3). Tiles follow each other without a
// gap: the first scores of one are computed beside the last sum of the one before.
#pragma once

#include "backend/cuda/mbarrier.cuh"
#include "ops/prim/attention/cuda_sm90_softmax.cuh"
#include "ops/prim/attention/cuda_sm90_split_kv.cuh"

namespace ebb::ops::cuda {

// Heads up to D wide, `Keys` keys a block, `Groups` warpgroups of 64 queries.
// Cuts: tiles may be cut into ranges of keys. Masked: with what p.f.mask says, which has no bias;
// blocks of keys come in the order of the keys, since every row sees the first one, if any.
template <int D, int Keys, int Groups, bool Cuts = false, bool Masked = false>
struct Sm90Shape {
  static constexpr bool cuts = Cuts, masked = Masked;
  static_assert(!(Cuts && Masked));
  static constexpr int width = D, keys = Keys, groups = Groups;
  static constexpr int threads = 128 * (groups + 1);
  static constexpr int rows = 64 * groups;
  // Pieces of 64 columns, 128 bytes a row, and perhaps one of 16: to load a wide one takes as long
  // when most of it lies beyond the head.
  static constexpr bool rest = Columns<D>::rest;
  static constexpr int columns = Columns<D>::pieces;
  static constexpr int row_bytes = 128 * columns + (rest ? 32 : 0);
  static constexpr int query_bytes = rows * row_bytes;
  static constexpr int block_bytes = (keys * row_bytes + 1023) / 1024 * 1024;
  // With a rest o is stored by TMA, through shared memory: rows of 144 or 160 bytes fill few
  // sectors otherwise. Without one that takes longer.
  static constexpr int store_bytes = rest ? query_bytes : 0;
  static constexpr int room = 226 * 1024 - store_bytes;
  static constexpr int queries = 2 * query_bytes + 4 * block_bytes <= room ? 2 : 1;
  static constexpr int fit = (room - queries * query_bytes) / (2 * block_bytes);
  static constexpr int stages = fit < 4 ? fit : 4;
  static constexpr int barriers = 2 * queries + 4 * stages;
  static constexpr int bytes =
      1024 + queries * query_bytes + 2 * stages * block_bytes + store_bytes + 8 * barriers;
  static constexpr int registers = groups == 3 ? 160 : 240,
                       registers_to_fetch = groups == 3 ? 32 : 24;
  static_assert(stages >= 2 && bytes <= 227 * 1024 && Keys % 16 == 0);
};

// Where things lie in shared memory. Queries: a warpgroup's 64 rows, piece after piece, then the
// next warpgroup's; keys and values: piece after piece.
template <class S>
struct Sm90Memory {
  uint32_t q, k, v, o, barriers;

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

// Where rows go: `Tiles` tiles of `Rows` rows.
template <class S, int Tiles, int Rows>
struct FetchRows {
  // Rows from `row` on of a head.
  __device__ static __forceinline__ void run(uint32_t to, uint32_t barrier, const CUtensorMap& map,
                                             const CUtensorMap& rest, const int3& at) {
    barrier_expect(barrier, Tiles * Rows * S::row_bytes);
#pragma unroll
    for (int i = 0; i < Tiles; ++i) {
      const uint32_t tile = to + i * Rows * S::row_bytes;
      const int row = at.x + i * Rows;
#pragma unroll
      for (int c = 0; c < S::columns; ++c)
        load_box4(tile + c * Rows * 128, barrier, map, {c * 64, row, at.y, at.z});
      if constexpr (S::rest)
        load_box4(tile + S::columns * Rows * 128, barrier, rest,
                  {S::columns * 64, row, at.y, at.z});
    }
  }
};

template <class S>
struct Sm90Producer {
  const Sm90Params& p;
  const Sm90Memory<S>& m;
  RingAt<S::queries> q;
  RingAt<S::stages> k, v;

  __device__ __forceinline__ int3 place(int row, int head) const {
    return {row, head % p.f.z.a, head / p.f.z.a};
  }
  __device__ __forceinline__ void queries(int tile) {
    barrier_wait(m.q_free(q.i), q.phase ^ 1);
    FetchRows<S, S::groups, 64>::run(m.query(q.i), m.q_full(q.i), p.q, p.q_rest,
                                     place(tile % p.f.parts * S::rows, tile / p.f.parts));
    q.next();
  }
  // Block j of a unit, the last one first; of a masked one, counted from its end.
  __device__ __forceinline__ int3 block(int j, const Sm90Unit& u) const {
    return place((S::masked ? u.end - 1 - j : j) * S::keys, u.tile / p.f.parts);
  }
  __device__ __forceinline__ void keys(int j, const Sm90Unit& u) {
    barrier_wait(m.k_free(k.i), k.phase ^ 1);
    FetchRows<S, 1, S::keys>::run(m.key(k.i), m.k_full(k.i), p.k, p.k_rest, block(j, u));
    k.next();
  }
  __device__ __forceinline__ void values(int j, const Sm90Unit& u) {
    barrier_wait(m.v_free(v.i), v.phase ^ 1);
    FetchRows<S, 1, S::keys>::run(m.value(v.i), m.v_full(v.i), p.v, p.v_rest, block(j, u));
    v.next();
  }
  // In the order of use: the keys of a block before the values of the one before it.
  __device__ __forceinline__ void run(int blocks) {
    const int step = gridDim.x;
    Sm90Unit u = sm90_unit<S>(p, blocks, blockIdx.x);
    queries(u.tile);
    keys(u.end - 1, u);
#pragma unroll 1
    for (int i = blockIdx.x; i < p.units; i += step) {
#pragma unroll 1
      for (int j = u.end - 1; j > u.begin; --j) {
        keys(j - 1, u);
        values(j, u);
      }
      const Sm90Unit next = sm90_unit<S>(p, blocks, i + step);
      if (i + step < p.units) {
        queries(next.tile);
        keys(next.end - 1, next);
      }
      values(u.begin, u);
      u = next;
    }
  }
};

// ---- the warpgroups that compute ---------------------------------------------------------------

template <class T, class S>
struct Sm90Consumer {
  const Sm90Params& p;
  const Sm90Memory<S>& m;
  int group, lane, blocks;
  int i;               // the unit of work
  bool wrong = false;  // whether weights passed the limit
  RowsSeen seen = {};  // of the unit, if it is masked
  RingAt<S::queries> q;
  RingAt<S::stages> k, v;
  OnlineSoftmax r;
  float o[1][S::width / 8][4];
  uint32_t w[2][S::keys / 16][4];

  __device__ __forceinline__ void release(uint32_t barrier) {
    if (lane == 0) barrier_arrive(barrier);
  }
  // Warpgroups issue products in turns.
  __device__ __forceinline__ void take_turn() { barrier_sync(1 + group, 256); }
  __device__ __forceinline__ void pass_turn() {
    barrier_arrive_named(1 + (group + 1 == S::groups ? 0 : group + 1), 256);
  }
  __device__ __forceinline__ uint32_t own_queries() const {
    return m.query(q.i) + group * 64 * S::row_bytes;
  }
  __device__ __forceinline__ int first_row(int of) const {
    return of % p.f.parts * S::rows + group * 64 + threadIdx.x % 128 / 32 * 16;
  }

  __device__ __forceinline__ void start_block(float (&s)[S::keys / 8][4]) {
    wgmma_start();
    start_scores<T, S::width, S::keys>(s, own_queries(), m.key(k.i));
    wgmma_submit();
  }
  __device__ __forceinline__ void end_block(float (&s)[S::keys / 8][4]) {
    fence_accumulators(s);
    release(m.k_free(k.i));
    k.next();
  }
  __device__ __forceinline__ void start_sum(const uint32_t (&weights)[S::keys / 16][4],
                                            bool first) {
    barrier_wait(m.v_full(v.i), v.phase);
    wgmma_start();
    start_values<T, S::width, S::keys>(o[0], weights, m.value(v.i), first);
    wgmma_submit();
  }
  __device__ __forceinline__ void end_sum() {
    wgmma_finish<0>();
    fence_accumulators(o[0]);
    release(m.v_free(v.i));
    v.next();
  }
  // Rows begin; the last block of keys comes first, and may be cut. If masked, the first one does.
  __device__ __forceinline__ void begin_unit(float (&s)[S::keys / 8][4], const Sm90Unit& u) {
    if constexpr (S::masked) {
      const HeadMask mask(p.f.z, p.f.mask, u.tile / p.f.parts);
      seen = {mask.count, first_row(u.tile) + mask.p.diagonal};
      hide(s, 0);
    } else {
      const int count = p.f.z.s - (u.end - 1) * S::keys;
      if (count < S::keys) cut_scores(s, count, lane);
    }
    begin_rows<S::keys>(r, s, p.f.z.scale_log2);
    if constexpr (S::masked) bound_highest(r);
    weigh_scores(s, p.f.z.scale_log2, r);
  }

  // Scores of keys that rows do not see, of block `block` of a masked unit, become minus infinity.
  __device__ __forceinline__ void hide(float (&s)[S::keys / 8][4], int block) {
    const int begin = block * S::keys;
    if (seen.of(0) >= begin + S::keys) return;  // the warp's first row, which sees the fewest
    const int row = lane / 4;
    const int ends[2] = {seen.of(row) - begin, seen.of(row + 8) - begin};
    hide_scores(s, ends, lane);
  }

  // Adds the values of the weights w[At] and computes w[1 - At] of the tile's next block, which is
  // number `block` if the unit is masked.
  template <int At>
  __device__ __forceinline__ void step(bool first, int block) {
    float s[S::keys / 8][4];
    barrier_wait(m.k_full(k.i), k.phase);
    take_turn();
    start_block(s);
    start_sum(w[At], first);
    pass_turn();
    wgmma_finish<1>();
    end_block(s);
    if constexpr (S::masked) hide(s, block);
    weigh_block<T>(w[1 - At], s, p.f.z.scale_log2, r);
    fence_accumulators(w[1 - At]);
    end_sum();
  }
  // Finishes a unit, whose last weights are w[At], and computes w[0] of the next one's first block.
  template <int At>
  __device__ __forceinline__ void next_unit(bool first) {
    float s[S::keys / 8][4];
    release(m.q_free(q.i));
    q.next();
    barrier_wait(m.q_full(q.i), q.phase);
    barrier_wait(m.k_full(k.i), k.phase);
    take_turn();
    start_block(s);
    start_sum(w[At], first);
    pass_turn();
    wgmma_finish<1>();
    end_block(s);
    const OnlineSoftmax done = r;
    begin_unit(s, sm90_unit<S>(p, blocks, i + gridDim.x));
    end_sum();
    pack_weights<T, S::keys>(w[0], s);
    fence_accumulators(w[0]);
    write(done);
  }
  // The same of the last unit.
  template <int At>
  __device__ __forceinline__ void last_unit(bool first) {
    start_sum(w[At], first);
    end_sum();
    write(r);
  }
  template <int At>
  __device__ __forceinline__ bool finish_unit(bool first) {
    if (i + static_cast<int>(gridDim.x) >= p.units) {
      last_unit<At>(first);
      return false;
    }
    next_unit<At>(first);
    i += gridDim.x;
    return true;
  }

  // The tile's o and lse. Where weights passed the limit lse is NaN, for now.
  __device__ __forceinline__ void write(const OnlineSoftmax& done) {
    const Sm90Unit u = sm90_unit<S>(p, blocks, i);
    if (u.range >= 0) {
      wrong |= !leave<S::width, S::groups>(p, u.range, group, o[0], done.highest, done.sum,
                                           kLargestRowSum<T>);
      return;
    }
    const int tile = u.tile, head = tile / p.f.parts, begin = first_row(tile);
    float factor[1][2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float sum = row_sum(done.sum[h]);
      const bool blind = S::masked && sum == 0;  // it sees no key
      factor[0][h] = blind ? 0 : __fdividef(1, sum);
      const bool good = sum <= kLargestRowSum<T>;
      const int row = begin + 8 * h + lane / 4;
      if (lane % 4 == 0 && row < p.f.z.t)
        p.f.lse[int64_t{head} * p.f.z.t + row] = blind  ? 0
                                                 : good ? (done.highest[h] + __log2f(sum)) * kLn2
                                                        : NAN;
      wrong |= !good;
    }
    if constexpr (S::rest)
      store(tile, factor[0]);
    else
      write_rows<T, 1, S::width>(out_rows_of<T>(p.f.z, p.f.o, head), begin, o, factor, lane);
  }

  // o times its rows' factors, through shared memory.
  __device__ __forceinline__ void store(int tile, const float (&factor)[2]) {
    const uint32_t at = m.o + group * 64 * S::row_bytes;
    const int barrier = 1 + S::groups + group, row = threadIdx.x % 128 / 32 * 16 + lane % 16;
    if (threadIdx.x % 128 == 0) store_wait_read<0>();
    barrier_sync(barrier, 128);  // the tile before has been read
#pragma unroll
    for (int n = 0; n < S::width / 8; n += 2) {
      uint32_t x[4];
      pack_columns<T>(x, o[0], n, factor);
      if (n / 8 < S::columns)
        store_columns<64 * 128>(at, 8 * n, x);
      else
        store_matrices(at + S::columns * 64 * 128 + row * 32 + (lane / 16 ^ (row / 4 & 1)) * 16, x);
    }
    fence_async();
    barrier_sync(barrier, 128);
    if (threadIdx.x % 128 != 0) return;
    const int head = tile / p.f.parts;
    const BoxAt to{0, tile % p.f.parts * S::rows + group * 64, head % p.f.z.a, head / p.f.z.a};
#pragma unroll
    for (int c = 0; c < S::columns; ++c)
      store_box(p.o, at + c * 64 * 128, {c * 64, to.y, to.z, to.w});
    store_box(p.o_rest, at + S::columns * 64 * 128, {S::columns * 64, to.y, to.z, to.w});
  }

  // Computes again what weights past the limit have spoiled.
  __device__ __forceinline__ void mend() {
    for (int unit = blockIdx.x; unit < p.units; unit += gridDim.x) {
      const Sm90Unit u = sm90_unit<S>(p, blocks, unit);
      const int head = u.tile / p.f.parts, begin = first_row(u.tile);
      const int of_warp = lane % 4 * 8 + lane / 4, row = begin + of_warp;
      bool bad = false;
      if (u.range >= 0 && lane % 4 < 2)
        bad = !(p.rows[u.range * S::rows + group * 64 + row % 64 / 16 * 16 + of_warp].y <=
                kLargestRowSum<T>);
      else if (lane % 4 < 2 && row < p.f.z.t)
        bad = !(p.f.lse[int64_t{head} * p.f.z.t + row] < INFINITY);
      if (!any_of_threads(bad, 1 + group, 128)) continue;
      const FallbackKeys keys{u.begin * S::keys, min(u.end * S::keys, p.f.z.s),
                              m.q + group * (S::queries * S::query_bytes / S::groups), 1 + group};
      Running<1, S::width> again;
      recompute_rows_online<T, S::width, S::masked>(again, p.f, head, begin, keys);
      if (u.range < 0)
        finish<T>(p.f, again, head, begin, lane);
      else
        leave<S::width, S::groups>(p, u.range, group, again.o[0], again.highest[0], again.sum[0],
                                   INFINITY);
    }
  }

  __device__ __forceinline__ void run() {
    {
      float s[S::keys / 8][4];
      barrier_wait(m.q_full(0), 0);
      barrier_wait(m.k_full(0), 0);
      start_block(s);
      wgmma_finish<0>();
      end_block(s);
      begin_unit(s, sm90_unit<S>(p, blocks, i));
      pack_weights<T, S::keys>(w[0], s);
    }
    if (group == S::groups - 1) pass_turn();
    bool more = true;
#pragma unroll 1
    while (more) {
      const Sm90Unit u = sm90_unit<S>(p, blocks, i);
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
    if (group == 0) take_turn();  // the last one that was passed
    if (S::rest && threadIdx.x % 128 == 0) store_wait();
    if (any_of_threads(wrong, 1 + group, 128)) mend();
  }
};

// o and lse.
// grid: thread blocks that share all tiles of queries, no more than there are tiles.
// sums: f32.  deterministic: yes.
template <class T, class S>
__global__ __launch_bounds__(S::threads,
                             1) void attention_sm90(const __grid_constant__ Sm90Params p) {
  begin();
  extern __shared__ __align__(1024) unsigned char memory[];
  Sm90Memory<S> m;
  m.q = (shared_address(memory) + 1023) / 1024 * 1024;
  m.k = m.q + S::queries * S::query_bytes;
  m.v = m.k + S::stages * S::block_bytes;
  m.o = m.v + S::stages * S::block_bytes;
  m.barriers = m.o + S::store_bytes;
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
  const int blocks = (p.f.z.s + S::keys - 1) / S::keys;
  if (group == S::groups) {
    fewer_registers<S::registers_to_fetch>();
    if (threadIdx.x == 128 * S::groups) Sm90Producer<S>{p, m}.run(blocks);
  } else {
    more_registers<S::registers>();
    Sm90Consumer<T, S> c{
        p, m, group, static_cast<int>(threadIdx.x % 32), blocks, static_cast<int>(blockIdx.x)};
    // A loop of one turn: outside of loops ptxas 13.0 does not use the registers that it was given.
    for (int i = blockIdx.x; i < p.units; i += p.units) c.run();
  }
}

}  // namespace ebb::ops::cuda
