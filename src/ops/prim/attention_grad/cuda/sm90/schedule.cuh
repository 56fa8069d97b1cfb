// attention_grad of long sequences (sm_90a): shared memory layout, barriers and scheduling of a
// thread block, and its producer warps.
#pragma once

#include <type_traits>

#include "backend/cuda/attention/wgmma.cuh"
#include "backend/cuda/kit/pipeline.cuh"
#include "ops/prim/attention_grad/cuda/blocks.cuh"
#include "ops/prim/attention_grad/cuda/sm90/tiles.h"

namespace ebb::ops::cuda {

// Tiles of a head accumulate dq in `dq_accum`. The accumulation is serialised per query block by a
// semaphore, which counts the tiles that have added theirs, in an order that depends on the sizes
// and the grid only: results are deterministic.
struct LongParams {
  GradParams g;
  CUtensorMap q, k, v, dout;
  LongSizes sizes;
  float* dq_accum;         // [head of k, query block, warpgroup] tiles
  float* dkv_partial;      // dk and dv of a query split, [split, head, 64 keys, dk or dv] tiles
  unsigned* dq_semaphore;  // [head of k, query block]
  uint16_t* turns;         // of CausalTile: causal_turn; null: PlainTile
  int semaphore_count;     // 0 if there is one block of keys
};

template <bool Causal>
using LongTile = std::conditional_t<Causal, CausalTile, PlainTile>;

constexpr int kRowTokens = 8;  // queries per thread block of the preprocess kernel

// A query block, numbered over all heads, to whose dq a tile adds: the first tile to do so stores
// it, the last one writes the result.
struct alignas(16) DqTurn {
  int block;
  bool first, last;
};

// D: 40, 64, 80 or 128, the padded width. A tile in shared memory is `boxes` TMA boxes of 64
// columns, `step` columns apart.
template <int D>
struct LongShape {
  static constexpr int groups = 2;  // consumer warpgroups of 64 keys; one producer warpgroup
  static constexpr int threads = 128 * (groups + 1);
  // Registers per thread after setmaxnreg; in total no more than at launch.
  static constexpr int consumer_registers = D == 128 ? 240 : 232,
                       producer_registers = D == 128 ? 24 : 40;
  static constexpr int keys = 64 * groups;  // per block
  static constexpr int boxes = D > 64 ? 2 : 1, step = D == 80 ? 40 : 64;
  static constexpr int queries = D > 64 ? 64 : 128;                               // per block
  static constexpr int column_tiles = D == 80 ? 2 : 1, width = D / column_tiles;  // N of dk and dv
  static constexpr int dq_width = boxes == 1 ? D : step;  // columns of dq per warpgroup
  static constexpr int key_bytes = boxes * keys * 128, query_bytes = boxes * queries * 128;
  static constexpr int ds_bytes = queries * keys * 2;
  static constexpr int stats_bytes = 4 * queries;  // lse_log2 or delta of a block
  // They are loaded before a GEMM is waited for; with 128 queries registers do not suffice.
  static constexpr bool early_stats = queries == 64;
  static constexpr int k = 0, v = k + 2 * key_bytes, q = v + 2 * key_bytes;
  static constexpr int dout = q + 2 * query_bytes, ds = dout + 2 * query_bytes;
  static constexpr int lse_log2 = ds + 2 * ds_bytes, delta = lse_log2 + 2 * stats_bytes;
  static constexpr int barriers = delta + 2 * stats_bytes, turns = barriers + 160;
  static constexpr int bytes = turns + 2 * static_cast<int>(sizeof(DqTurn));
  static constexpr int dq_tile_floats = 64 * dq_width, dkv_tile_floats = 64 * D;  // floats
  static constexpr int dkv_tiles = 2 * keys / 64;  // dk and dv of a key block, 64 rows each
};

// A pipeline of two stages, by the number of a use. Of the consumers every warp arrives once.
struct TwoStages : Pipeline<2> {
  __device__ __forceinline__ void acquire(int use) const {
    producer_acquire(pipeline_state<2>(use));
  }
  __device__ __forceinline__ void commit(int use) const { arrive(full(use & 1)); }
  __device__ __forceinline__ void wait(int use) const { consumer_wait(pipeline_state<2>(use)); }
  __device__ __forceinline__ void release(int use) const { arrive(empty(use & 1)); }
  __device__ __forceinline__ void wait_released(int use) const {
    const auto s = pipeline_state<2>(use);
    barrier_wait(empty(s.index), s.phase);
  }

 private:
  __device__ static __forceinline__ void arrive(uint32_t barrier) {
    __syncwarp();
    if (threadIdx.x % 32 == 0) barrier_arrive(barrier);
  }
};

template <int D>
__device__ __forceinline__ DqTurn* dq_turns(unsigned char* memory) {
  return reinterpret_cast<DqTurn*>(memory + LongShape<D>::turns);
}

// Of key tiles (k and v), of query blocks (q, do, ds), and of dq, whose full barriers say that the
// semaphore lets this tile add its dq, as its DqTurn says, and whose empty ones that it has been
// added. Each has four barriers.
template <int D>
struct LongPipelines {
  TwoStages keys, q, dout, ds, dq;

  __device__ __forceinline__ explicit LongPipelines(uint32_t memory)
      : keys{memory + LongShape<D>::barriers},
        q{keys.barriers, 4},
        dout{keys.barriers, 8},
        ds{keys.barriers, 12},
        dq{keys.barriers, 16} {}
};

// A query block, of head `head` of a sample; `count`: its number among those that the thread block
// processes.
struct Block {
  int sample, head, block, count;
};

template <int D>
__device__ __forceinline__ void init_barriers(uint32_t memory) {
  constexpr unsigned warps = 4 * LongShape<D>::groups;
  const LongPipelines<D> of(memory);
  const auto init = [](const Pipeline<2>& p, unsigned producers, unsigned consumers) {
    for (int i = 0; i < 2; ++i) barrier_init(p.full(i), producers);
    for (int i = 0; i < 2; ++i) barrier_init(p.empty(i), consumers);
  };
  init(of.keys, 1, warps);
  init(of.q, 1, warps);
  init(of.dout, 1, warps);
  init(of.ds, warps, warps);
  init(of.dq, 2, warps);
  barrier_init_done();
}

// ---- producer warps ---------------------------------------------------------------------------

// Rows of a head of a sample, as boxes of 64 columns.
struct LoadRows {
  uint32_t to, barrier;
  int sample, head, row, rows;
};
template <int D>
__device__ __forceinline__ void load_rows(const CUtensorMap& map, const LoadRows& l) {
  using S = LongShape<D>;
#pragma unroll
  for (int b = 0; b < S::boxes; ++b)
    load_box4(l.to + b * l.rows * 128, l.barrier, map, {b * S::step, l.row, l.head, l.sample});
}

// A block of q with its lse_log2, or of do with its delta.
template <int D>
__device__ __forceinline__ void load_queries(const LongParams& p, uint32_t memory, bool dout,
                                             const Block& b) {
  using S = LongShape<D>;
  const LongPipelines<D> of(memory);
  const TwoStages& pipeline = dout ? of.dout : of.q;
  const int slot = b.count & 1;
  pipeline.acquire(b.count);
  const uint32_t full = pipeline.full(slot);
  barrier_expect(full, S::query_bytes + S::stats_bytes);
  load_rows<D>(dout ? p.dout : p.q, {memory + (dout ? S::dout : S::q) + slot * S::query_bytes, full,
                                     b.sample, b.head, b.block * S::queries, S::queries});
  load_bytes(memory + (dout ? S::delta : S::lse_log2) + slot * S::stats_bytes, full,
             (dout ? p.g.delta : p.g.lse_log2) + (b.sample * p.g.z.a + b.head) * p.g.pitch +
                 b.block * S::queries,
             S::stats_bytes);
}

// One thread issues all loads, tile by tile.
template <int D, bool Causal>
__device__ __forceinline__ void load_tiles(const LongParams& p, uint32_t memory) {
  using S = LongShape<D>;
  const int heads = p.g.z.a / p.g.z.group;
  int tiles = 0, blocks = 0;
  for (int i = blockIdx.x; i < p.sizes.tiles; i += gridDim.x) {
    const auto t = LongTile<Causal>::at(p.sizes, gridDim.x, i);
    if (Causal && t.blocks == 0) continue;
    const TwoStages pipeline = LongPipelines<D>(memory).keys;
    const int slot = tiles & 1, key = t.key_block * S::keys;
    pipeline.acquire(tiles);
    const uint32_t full = pipeline.full(slot), skip = slot * S::key_bytes;
    barrier_expect(full, 2 * S::key_bytes);
    const int sample = t.head / heads, head = t.head % heads;
    load_rows<D>(p.k, {memory + S::k + skip, full, sample, head, key, S::keys});
    load_rows<D>(p.v, {memory + S::v + skip, full, sample, head, key, S::keys});
    auto x = t.begin(p.sizes);
    for (int j = 0; j < t.blocks; ++blocks, ++j, x = t.next(x, j, p.sizes)) {
      const int query_head = head * p.g.z.group + x.head(p.sizes);
      const Block b{sample, query_head, x.block(p.sizes), blocks};
      load_queries<D>(p, memory, false, b);
      load_queries<D>(p, memory, true, b);
    }
    ++tiles;
  }
}

// Waits until the semaphore has reached `rank`. A deadlock is a bug, and becomes a launch error, as
// in barrier_wait.
__device__ __forceinline__ void wait_semaphore(const unsigned* semaphore, unsigned rank) {
  constexpr uint64_t never = 10'000'000'000;  // ns
  uint64_t since = 0, now;
  while (load_acquire(semaphore) < rank) {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    if (since == 0) since = now;
    if (now - since > never)
      asm volatile("st.global.u32 [%0], %1;" ::"l"(uint64_t{0}), "r"(rank) : "memory");
  }
}

// One thread waits for the semaphore, and lets the consumers of this thread block add dq. It also
// computes their turns, which takes divisions.
template <int D, bool Causal>
__device__ __forceinline__ void acquire_dq(const LongParams& p, unsigned char* memory) {
  const TwoStages dq = LongPipelines<D>(shared_address(memory)).dq;
  int blocks = 0;
  for (int i = blockIdx.x; i < p.sizes.tiles; i += gridDim.x) {
    const auto t = LongTile<Causal>::at(p.sizes, gridDim.x, i);
    auto x = t.begin(p.sizes);
    for (int j = 0; j < t.blocks; ++blocks, ++j, x = t.next(x, j, p.sizes)) {
      const int block = block_of(p.sizes, t.head, x.index(p.sizes));
      const auto turn = t.turn(x.index(p.sizes), p.turns);
      if (blocks >= 2) dq.wait_released(blocks - 2);
      dq_turns<D>(memory)[blocks & 1] = {block, turn.rank() == 0, turn.last(p.sizes)};
      if (turn.rank() > 0)  // one block of keys has no semaphores
        wait_semaphore(p.dq_semaphore + block, static_cast<unsigned>(turn.rank()));
      barrier_arrive(dq.full(blocks & 1));
    }
  }
}

// Two threads, for even and odd query blocks, release the semaphore after dq has been added: their
// fences take as long as a block. The full barriers wait for them too, so that neither misses a
// phase.
template <int D, bool Causal>
__device__ __forceinline__ void release_dq(const LongParams& p, uint32_t memory, int slot) {
  const TwoStages dq = LongPipelines<D>(memory).dq;
  int blocks = 0;
  barrier_arrive(dq.full(slot));
  for (int i = blockIdx.x; i < p.sizes.tiles; i += gridDim.x) {
    const auto t = LongTile<Causal>::at(p.sizes, gridDim.x, i);
    auto x = t.begin(p.sizes);
    for (int j = 0; j < t.blocks; ++blocks, ++j, x = t.next(x, j, p.sizes)) {
      if ((blocks & 1) != slot) continue;
      const auto turn = t.turn(x.index(p.sizes), p.turns);
      const bool last = turn.last(p.sizes);
      const auto rank = static_cast<unsigned>(turn.rank());
      dq.wait_released(blocks);
      barrier_arrive(dq.full(slot));
      if (!last)
        store_release(p.dq_semaphore + block_of(p.sizes, t.head, x.index(p.sizes)), rank + 1);
    }
  }
}

}  // namespace ebb::ops::cuda
