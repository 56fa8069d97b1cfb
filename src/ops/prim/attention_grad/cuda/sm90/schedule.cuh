// attention_grad of long sequences (sm_90a): shared memory layout, barriers and scheduling of a
// thread block, and its producer warps.
#pragma once

#include <type_traits>

#include "backend/cuda/attention/wgmma.cuh"
#include "backend/cuda/kit/mbarrier.cuh"
#include "backend/cuda/kit/wgmma.cuh"
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
  static constexpr int k = 0, v = k + 2 * key_bytes, q = v + 2 * key_bytes;
  static constexpr int dout = q + 2 * query_bytes, ds = dout + 2 * query_bytes;
  static constexpr int lse_log2 = ds + 2 * ds_bytes, delta = lse_log2 + 2 * stats_bytes;
  static constexpr int barriers = delta + 2 * stats_bytes, bytes = barriers + 160;
  static constexpr int dq_tile_floats = 64 * dq_width, dkv_tile_floats = 64 * D;  // floats
  static constexpr int dkv_tiles = 2 * keys / 64;  // dk and dv of a key block, 64 rows each
};

// mbarriers, two stages each: key tiles (k and v), query blocks (q, do, ds), dq semaphores.
enum class PipelineBarrier : int {
  keys_full,
  keys_empty,
  q_full,
  q_empty,
  dout_full,
  dout_empty,
  ds_full,
  ds_empty,
  dq_acquired,  // the semaphore lets this tile add its dq
  dq_added,     // dq has been added
  count
};

// The stage of use number `count`, and the parity of its phase.
struct Use2 {
  int slot;
  uint32_t parity;
};
__device__ __forceinline__ Use2 use2(int count) {
  return {count & 1, static_cast<uint32_t>(count >> 1 & 1)};
}

// A query block, of head `head` of a sample; `count`: its number among those that the thread block
// processes.
struct Block {
  int sample, head, block, count;
};

template <int D>
__device__ __forceinline__ uint32_t barrier_at(uint32_t memory, PipelineBarrier barrier, int slot) {
  return memory + LongShape<D>::barriers + (static_cast<int>(barrier) * 2 + slot) * 8;
}
// Waits for the phase of use number `count`.
template <int D>
__device__ __forceinline__ void wait_for(uint32_t memory, PipelineBarrier barrier, int count) {
  const Use2 u = use2(count);
  barrier_wait(barrier_at<D>(memory, barrier, u.slot), u.parity);
}
// Waits for the previous phase of the same stage.
template <int D>
__device__ __forceinline__ void wait_free(uint32_t memory, PipelineBarrier barrier, int count) {
  const Use2 u = use2(count);
  barrier_wait(barrier_at<D>(memory, barrier, u.slot), u.parity ^ 1);
}
// Every consumer warp arrives once.
template <int D>
__device__ __forceinline__ void arrive(uint32_t memory, PipelineBarrier barrier, int count) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier_arrive(barrier_at<D>(memory, barrier, count & 1));
}

template <int D>
__device__ __forceinline__ void init_barriers(uint32_t memory) {
  constexpr int warps = 4 * LongShape<D>::groups;
  for (int i = 0; i < static_cast<int>(PipelineBarrier::count); ++i) {
    const auto barrier = static_cast<PipelineBarrier>(i);
    const bool one = barrier == PipelineBarrier::keys_full || barrier == PipelineBarrier::q_full ||
                     barrier == PipelineBarrier::dout_full;
    const unsigned arrivals = one ? 1 : barrier == PipelineBarrier::dq_acquired ? 2 : warps;
    for (int slot = 0; slot < 2; ++slot)
      barrier_init(barrier_at<D>(memory, barrier, slot), arrivals);
  }
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
  const int slot = b.count & 1;
  wait_free<D>(memory, dout ? PipelineBarrier::dout_empty : PipelineBarrier::q_empty, b.count);
  const uint32_t barrier =
      barrier_at<D>(memory, dout ? PipelineBarrier::dout_full : PipelineBarrier::q_full, slot);
  barrier_expect(barrier, S::query_bytes + S::stats_bytes);
  load_rows<D>(dout ? p.dout : p.q, {memory + (dout ? S::dout : S::q) + slot * S::query_bytes,
                                     barrier, b.sample, b.head, b.block * S::queries, S::queries});
  load_bytes(memory + (dout ? S::delta : S::lse_log2) + slot * S::stats_bytes, barrier,
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
    const int slot = tiles & 1, key = t.key_block * S::keys;
    wait_free<D>(memory, PipelineBarrier::keys_empty, tiles);
    const uint32_t barrier = barrier_at<D>(memory, PipelineBarrier::keys_full, slot);
    barrier_expect(barrier, 2 * S::key_bytes);
    const int sample = t.head / heads, head = t.head % heads;
    load_rows<D>(p.k, {memory + S::k + slot * S::key_bytes, barrier, sample, head, key, S::keys});
    load_rows<D>(p.v, {memory + S::v + slot * S::key_bytes, barrier, sample, head, key, S::keys});
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

// One thread waits for the semaphore, and lets the consumers of this thread block add dq.
template <int D, bool Causal>
__device__ __forceinline__ void acquire_dq(const LongParams& p, uint32_t memory) {
  int blocks = 0;
  for (int i = blockIdx.x; i < p.sizes.tiles; i += gridDim.x) {
    const auto t = LongTile<Causal>::at(p.sizes, gridDim.x, i);
    auto x = t.begin(p.sizes);
    for (int j = 0; j < t.blocks; ++blocks, ++j, x = t.next(x, j, p.sizes)) {
      if (blocks >= 2) wait_for<D>(memory, PipelineBarrier::dq_added, blocks - 2);
      wait_semaphore(p.dq_semaphore + t.head * p.sizes.query_blocks + x.index(p.sizes),
                     static_cast<unsigned>(t.turn(x.index(p.sizes), p.turns).rank()));
      barrier_arrive(barrier_at<D>(memory, PipelineBarrier::dq_acquired, blocks & 1));
    }
  }
}

// Two threads, for even and odd query blocks, release the semaphore after dq has been added: their
// fences take as long as a block. dq_acquired waits for them too, so that neither misses a phase.
template <int D, bool Causal>
__device__ __forceinline__ void release_dq(const LongParams& p, uint32_t memory, int slot) {
  int blocks = 0;
  barrier_arrive(barrier_at<D>(memory, PipelineBarrier::dq_acquired, slot));
  for (int i = blockIdx.x; i < p.sizes.tiles; i += gridDim.x) {
    const auto t = LongTile<Causal>::at(p.sizes, gridDim.x, i);
    auto x = t.begin(p.sizes);
    for (int j = 0; j < t.blocks; ++blocks, ++j, x = t.next(x, j, p.sizes)) {
      if ((blocks & 1) != slot) continue;
      wait_for<D>(memory, PipelineBarrier::dq_added, blocks);
      barrier_arrive(barrier_at<D>(memory, PipelineBarrier::dq_acquired, slot));
      const Turn turn = t.turn(x.index(p.sizes), p.turns);
      if (!turn.last())
        store_release(p.dq_semaphore + t.head * p.sizes.query_blocks + x.index(p.sizes),
                      static_cast<unsigned>(turn.rank() + 1));
    }
  }
}

}  // namespace ebb::ops::cuda
