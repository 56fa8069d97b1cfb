// What a thread block of the long attention_grad (sm_90a) keeps in shared memory, how its
// barriers are counted, and which keys and queries it works on.
#pragma once

#include "backend/cuda/attention_wgmma.cuh"
#include "backend/cuda/mbarrier.cuh"
#include "backend/cuda/wgmma_wide.cuh"
#include "ops/prim/attention_grad/cuda_grad.cuh"

namespace ebb::ops::cuda {

// A tile is `keys` keys of a head and a range of its queries. dq of a block of queries is summed
// over the tiles of a head in `sums`, tile after tile in an order that depends on the sizes and the
// grid alone: `turns` counts the tiles that have added theirs.
struct LongParams {
  GradParams g;
  CUtensorMap q, k, v, dout;
  float* sums;      // dq, [head, block of queries, warpgroup] pieces
  float* parts;     // dk and dv of a range of queries, [range, head, 64 keys, dk or dv] pieces
  unsigned* turns;  // [head, block of queries]
  int key_blocks, query_blocks, ranges, tiles;
  int turn_count;  // words of turns; 0 if there is one block of keys
};

constexpr int kRowTokens = 8;  // queries of a thread block of the first pass

// D: 40, 64, 80 or 128, the width with its padding. A tile in shared memory is `boxes` boxes of 64
// columns, `step` columns from one to the next.
template <int D>
struct LongShape {
  static constexpr int groups = 2;  // warpgroups, of 64 keys each; one more loads
  static constexpr int threads = 128 * (groups + 1);
  // Registers of a thread that multiplies, and of another: together no more than at the launch.
  static constexpr int many = D == 128 ? 240 : 232, few = D == 128 ? 24 : 40;
  static constexpr int keys = 64 * groups;  // of a block
  static constexpr int boxes = D > 64 ? 2 : 1, step = D == 80 ? 40 : 64;
  static constexpr int queries = D > 64 ? 64 : 128;                 // of a block
  static constexpr int parts = D == 80 ? 2 : 1, width = D / parts;  // dk and dv: columns at once
  static constexpr int dq_width = boxes == 1 ? D : step;            // columns a warpgroup
  static constexpr int key_bytes = boxes * keys * 128, query_bytes = boxes * queries * 128;
  static constexpr int ds_bytes = queries * keys * 2;
  static constexpr int sums_bytes = 4 * queries;  // shift or delta of a block
  static constexpr int k = 0, v = k + 2 * key_bytes, q = v + 2 * key_bytes;
  static constexpr int dout = q + 2 * query_bytes, ds = dout + 2 * query_bytes;
  static constexpr int shift = ds + 2 * ds_bytes, delta = shift + 2 * sums_bytes;
  static constexpr int barriers = delta + 2 * sums_bytes, bytes = barriers + 160;
  static constexpr int dq_piece = 64 * dq_width, part_piece = 64 * D;  // floats
  static constexpr int pieces = 2 * keys / 64;  // of dk and dv of a block of keys
};

// Pairs of barriers: two tiles of k and v, two blocks of q, do and ds, two turns.
enum class Pair : int {
  keys_full,
  keys_empty,
  q_full,
  q_empty,
  dout_full,
  dout_empty,
  ds_full,
  ds_empty,
  turn,   // it is this tile's turn to add dq
  added,  // dq has been added
  count
};

// The use number `count` of a pair: which of the two it takes, and the parity of its phase.
struct Use2 {
  int slot;
  uint32_t parity;
};
__device__ __forceinline__ Use2 use2(int count) {
  return {count & 1, static_cast<uint32_t>(count >> 1 & 1)};
}

// A block of queries; `count`: of those that the thread block has met.
struct Block {
  int head, block, count;
};

template <int D>
__device__ __forceinline__ uint32_t barrier_at(uint32_t memory, Pair pair, int slot) {
  return memory + LongShape<D>::barriers + (static_cast<int>(pair) * 2 + slot) * 8;
}
// Waits until the use number `count` is complete.
template <int D>
__device__ __forceinline__ void wait_for(uint32_t memory, Pair pair, int count) {
  const Use2 u = use2(count);
  barrier_wait(barrier_at<D>(memory, pair, u.slot), u.parity);
}
// Waits until the use before the use number `count` of the same slot is complete.
template <int D>
__device__ __forceinline__ void wait_free(uint32_t memory, Pair pair, int count) {
  const Use2 u = use2(count);
  barrier_wait(barrier_at<D>(memory, pair, u.slot), u.parity ^ 1);
}
// Every warp of the warpgroups that multiply says it once.
template <int D>
__device__ __forceinline__ void say(uint32_t memory, Pair pair, int count) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) barrier_arrive(barrier_at<D>(memory, pair, count & 1));
}

template <int D>
__device__ __forceinline__ void init_pairs(uint32_t memory) {
  constexpr int warps = 4 * LongShape<D>::groups;
  for (int i = 0; i < static_cast<int>(Pair::count); ++i) {
    const auto pair = static_cast<Pair>(i);
    const bool one = pair == Pair::keys_full || pair == Pair::q_full || pair == Pair::dout_full;
    const unsigned arrivals = one ? 1 : pair == Pair::turn ? 2 : warps;
    for (int slot = 0; slot < 2; ++slot) barrier_init(barrier_at<D>(memory, pair, slot), arrivals);
  }
  barrier_init_done();
}

// A tile's peers are the tiles of its head that other thread blocks take at the same time. They
// begin at different blocks of queries and go round, so that no two of them add to the same dq at
// once; it is added to in the order in which they come by.
struct LongTile {
  int head, key_block, range;
  int first, blocks;         // of queries: the first block and how many
  int before, peers, place;  // tiles taken before the peers; peers, with this one; its place there
  int start;                 // the block of queries met first
  __device__ int block(int i) const {  // the block of queries met as number i
    return start + i - (start + i < first + blocks ? 0 : blocks);
  }
  // Of the head's tiles, how many add to dq of a block before this one does.
  __device__ int rank(int block) const {
    const int begun = ((block - first + 1) * peers + blocks - 1) / blocks;  // peers not behind it
    return before + begun - 1 - place + (place < begun ? 0 : peers);
  }
};

// Thread block c takes the tiles c, c + grid, ...
__device__ __forceinline__ LongTile long_tile(const LongParams& p, int i) {
  const int keys = p.key_blocks, grid = gridDim.x, part = i / keys;
  LongTile t;
  t.key_block = i % keys;
  t.range = part % p.ranges;
  t.head = part / p.ranges;
  t.first = t.range * p.query_blocks / p.ranges;
  t.blocks = (t.range + 1) * p.query_blocks / p.ranges - t.first;
  const int now =
      grid - (i - t.key_block) % grid;  // tiles from the head's first to the round's end
  t.before = t.key_block < now ? 0 : now + (t.key_block - now) / grid * grid;
  t.peers = min(keys - t.before, t.key_block < now ? now : grid);
  t.place = t.key_block - t.before;
  t.start = t.first + t.place * t.blocks / t.peers;
  return t;
}

// ---- the warps that do not multiply -----------------------------------------------------------

// Rows of a head, as boxes of 64 columns.
struct LoadRows {
  uint32_t to, barrier;
  int head, row, rows;
};
template <int D>
__device__ __forceinline__ void load_rows(const LongParams& p, const CUtensorMap& map,
                                          const LoadRows& l) {
  using S = LongShape<D>;
#pragma unroll
  for (int b = 0; b < S::boxes; ++b)
    load_box4(l.to + b * l.rows * 128, l.barrier, map,
              {b * S::step, l.row, l.head % p.g.z.a, l.head / p.g.z.a});
}

// A block of q or do with its shift or delta.
template <int D>
__device__ __forceinline__ void load_queries(const LongParams& p, uint32_t memory, bool dout,
                                             const Block& b) {
  using S = LongShape<D>;
  const int slot = b.count & 1;
  wait_free<D>(memory, dout ? Pair::dout_empty : Pair::q_empty, b.count);
  const uint32_t barrier = barrier_at<D>(memory, dout ? Pair::dout_full : Pair::q_full, slot);
  barrier_expect(barrier, S::query_bytes + S::sums_bytes);
  load_rows<D>(p, dout ? p.dout : p.q,
               {memory + (dout ? S::dout : S::q) + slot * S::query_bytes, barrier, b.head,
                b.block * S::queries, S::queries});
  load_bytes(memory + (dout ? S::delta : S::shift) + slot * S::sums_bytes, barrier,
             (dout ? p.g.delta : p.g.shift) + b.head * p.g.pitch + b.block * S::queries,
             S::sums_bytes);
}

// One thread loads everything, tile by tile.
template <int D>
__device__ __forceinline__ void load_tiles(const LongParams& p, uint32_t memory) {
  using S = LongShape<D>;
  int tiles = 0, blocks = 0;
  for (int i = blockIdx.x; i < p.tiles; i += gridDim.x, ++tiles) {
    const LongTile t = long_tile(p, i);
    const int slot = tiles & 1, key = t.key_block * S::keys;
    wait_free<D>(memory, Pair::keys_empty, tiles);
    const uint32_t barrier = barrier_at<D>(memory, Pair::keys_full, slot);
    barrier_expect(barrier, 2 * S::key_bytes);
    load_rows<D>(p, p.k, {memory + S::k + slot * S::key_bytes, barrier, t.head, key, S::keys});
    load_rows<D>(p, p.v, {memory + S::v + slot * S::key_bytes, barrier, t.head, key, S::keys});
    for (int j = 0; j < t.blocks; ++j, ++blocks) {
      load_queries<D>(p, memory, false, {t.head, t.block(j), blocks});
      load_queries<D>(p, memory, true, {t.head, t.block(j), blocks});
    }
  }
}

// Waits until another thread block has stored `rank` or more. A turn that never comes is a bug,
// and becomes an error of the launch, as in barrier_wait.
__device__ __forceinline__ void wait_for_turn(const unsigned* turn, unsigned rank) {
  constexpr uint64_t never = 10'000'000'000;  // ns
  uint64_t since = 0, now;
  while (load_acquire(turn) < rank) {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    if (since == 0) since = now;
    if (now - since > never)
      asm volatile("st.global.u32 [%0], %1;" ::"l"(uint64_t{0}), "r"(rank) : "memory");
  }
}

// One thread waits for the tiles before, and lets this thread block add.
template <int D>
__device__ __forceinline__ void take_turns(const LongParams& p, uint32_t memory) {
  int blocks = 0;
  for (int i = blockIdx.x; i < p.tiles; i += gridDim.x) {
    const LongTile t = long_tile(p, i);
    for (int j = 0; j < t.blocks; ++j, ++blocks) {
      if (blocks >= 2) wait_for<D>(memory, Pair::added, blocks - 2);
      const int b = t.block(j);
      const unsigned* const turn = p.turns + t.head * p.query_blocks + b;
      const auto rank = static_cast<unsigned>(t.rank(b));
      wait_for_turn(turn, rank);
      barrier_arrive(barrier_at<D>(memory, Pair::turn, blocks & 1));
    }
  }
}

// Two threads let the next tiles add when this one has, every other block each: their fences take
// as long as a block. A turn waits for them too, so that none of them misses a phase.
template <int D>
__device__ __forceinline__ void pass_turns(const LongParams& p, uint32_t memory, int slot) {
  int blocks = 0;
  barrier_arrive(barrier_at<D>(memory, Pair::turn, slot));
  for (int i = blockIdx.x; i < p.tiles; i += gridDim.x) {
    const LongTile t = long_tile(p, i);
    for (int j = 0; j < t.blocks; ++j, ++blocks) {
      if ((blocks & 1) != slot) continue;
      wait_for<D>(memory, Pair::added, blocks);
      barrier_arrive(barrier_at<D>(memory, Pair::turn, slot));
      const int b = t.block(j), rank = t.rank(b);
      if (rank + 1 < p.key_blocks) store_release(p.turns + t.head * p.query_blocks + b, rank + 1);
    }
  }
}

}  // namespace ebb::ops::cuda
