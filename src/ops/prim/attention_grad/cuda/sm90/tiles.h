// Work of the long attention_grad (sm_90a): which query blocks a tile visits, in which order, and
// when it adds its dq of each. Plain C++, which the tests run on the host.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/round_up.h"

namespace ebb::ops::cuda {

// A tile is a block of keys of a head of k and v, and a split of the query blocks that read the
// head: those of all query heads of its group, one query head after another. A query block's index
// is its number among them.
struct LongSizes {
  int heads = 0;  // of k and v, of all samples
  int key_blocks = 0;
  int head_blocks = 0;   // query blocks of a query head
  int query_blocks = 0;  // of the group: group * head_blocks
  int query_splits = 1;
  int key_chunk = 0;  // PlainTile: key blocks of a chunk
  int tiles = 0;      // CausalTile: some have no blocks
  int grid = 0;       // thread blocks
  // Of CausalTile alone.
  int keys = 0, queries = 0;  // per block
  int diagonal = 0;           // query t attends to the keys up to t + diagonal; not negative
  constexpr bool grouped() const { return query_blocks != head_blocks; }
};

// The number of query block `index` of a head over all heads, and back.
constexpr int block_of(const LongSizes& z, int head, int index) {
  return head * z.query_blocks + index;
}
struct HeadBlock {
  int head, index;
  static constexpr HeadBlock at(const LongSizes& z, int block) {
    return {block / z.query_blocks, block % z.query_blocks};
  }
};

// Thread block c processes the tiles c, c + grid, ... Tiles are numbered by chunk of key blocks,
// head and split, and key block: chunks of a head are hardly under way together if there are many
// heads. A tile's peers are the tiles of its chunk, head and split in the same wave. They start at
// different query blocks and visit them cyclically, so that no two peers want to add to one dq at
// once; dq is added up in the order in which they arrive.
struct PlainTile {
  // A tile's place among those that add to dq of a query block. A number that is compared, as
  // branches on a packed bit are divergent to the compiler, which lays the rare one out first then.
  struct Turn {
    int number;
    constexpr int rank() const { return number; }  // how many come before it
    constexpr bool last(const LongSizes& z) const { return number + 1 == z.key_blocks; }
  };
  int head, key_block, query_split;
  int first, blocks;  // query blocks: the first one and their number
  // Tiles of earlier chunks and waves; peers, this one included; index among them.
  int before, peers, peer;
  int start;  // the query block visited first

  static constexpr PlainTile at(const LongSizes& z, int grid, int i) {
    const int units = z.heads * z.query_splits, first_key = i / (units * z.key_chunk) * z.key_chunk;
    const int left = z.key_blocks - first_key, keys = left < z.key_chunk ? left : z.key_chunk;
    const int unit = (i - units * first_key) / keys, key = (i - units * first_key) % keys;
    PlainTile t{};
    t.key_block = first_key + key;
    t.query_split = unit % z.query_splits;
    t.head = unit / z.query_splits;
    t.first = t.query_split * z.query_blocks / z.query_splits;
    t.blocks = (t.query_split + 1) * z.query_blocks / z.query_splits - t.first;
    // Tiles from the first of the unit's chunk to the end of the wave.
    const int now = grid - (i - key) % grid;
    const int before = key < now ? 0 : now + (key - now) / grid * grid;
    const int rest = keys - before, wave = key < now ? now : grid;
    t.before = first_key + before;
    t.peers = rest < wave ? rest : wave;
    t.peer = key - before;
    t.start = t.first + t.peer * t.blocks / t.peers;
    return t;
  }
  // Whether the thread block has another tile after number i.
  static constexpr bool more(const LongSizes& z, int grid, int i) { return i + grid < z.tiles; }
  // A query block. Without groups nothing is divided: the thread that loads has few registers.
  struct Place {
    int at;
    constexpr int index(const LongSizes&) const { return at; }
    constexpr int head(const LongSizes& z) const { return z.grouped() ? at / z.head_blocks : 0; }
    constexpr int block(const LongSizes& z) const { return z.grouped() ? at % z.head_blocks : at; }
  };
  constexpr Place begin(const LongSizes&) const { return {start}; }
  // The one visited as number j.
  constexpr Place next(const Place& /*p*/, int j, const LongSizes&) const {
    return {start + j - (start + j < first + blocks ? 0 : blocks)};
  }
  constexpr Turn turn(int block, const uint16_t* /*turns*/) const {
    // Peers that start at or before the block.
    const int begun = ((block - first + 1) * peers + blocks - 1) / blocks;
    return {before + begun - 1 - peer + (peer < begun ? 0 : peers)};
  }
};

// With a causal mask, key block k is seen by the last query blocks of a query head only. A thread
// block takes key block k and then its mirror image, so that all have about the same work (compare
// Qiang et al. 2026, DASH). The first is visited upwards from the diagonal, the mirror image
// downwards from the last query block: at any time, nearly all thread blocks of a head are at
// different query blocks. dq is added up in the order of those times. All tiles of a head and split
// run at once: the grid is a multiple of their pairs.
struct CausalTile {
  // As PlainTile's, with both in the table's entry.
  struct Turn {
    int code;
    static constexpr Turn of(int rank, bool last) { return {rank << 1 | (last ? 1 : 0)}; }
    constexpr int rank() const { return code >> 1; }
    constexpr bool last(const LongSizes&) const { return (code & 1) != 0; }
  };
  int head, key_block, query_split;
  int blocks;   // 0: nothing to do
  int first;    // query block of the split
  int visible;  // query blocks of a query head that see the key block
  int split_blocks;
  bool mirrored;

  static constexpr int pairs(const LongSizes& z) { return (z.key_blocks + 1) / 2; }
  // The first query block of a query head that sees a key block.
  static constexpr int first_block(const LongSizes& z, int key_block) {
    const int query = key_block * z.keys - z.diagonal;
    return query > 0 ? query / z.queries : 0;
  }
  static constexpr CausalTile at(const LongSizes& z, int grid, int i) {
    CausalTile t{};
    const int wave = i / grid, pair = i % grid + wave / 2 * grid, unit = pair / pairs(z);
    t.mirrored = wave % 2 == 1;
    t.key_block = t.mirrored ? z.key_blocks - 1 - pair % pairs(z) : pair % pairs(z);
    t.head = unit / z.query_splits;
    t.query_split = unit % z.query_splits;
    t.split_blocks = z.query_blocks / z.query_splits;
    t.first = t.query_split * t.split_blocks;
    t.visible = z.head_blocks - first_block(z, t.key_block);
    const bool twice = t.mirrored && t.key_block < pairs(z);  // the middle is its own image
    t.blocks = t.head < z.heads && !twice ? t.split_blocks / z.head_blocks * t.visible : 0;
    return t;
  }
  static constexpr bool more(const LongSizes& z, int grid, int i) {
    const auto next = [&](int k) { return k < z.tiles && at(z, grid, k).blocks > 0; };
    return next(i + grid) || next(i + 2 * grid);
  }
  struct Place {
    int query_head, at;
    constexpr int index(const LongSizes& z) const { return query_head * z.head_blocks + at; }
    constexpr int head(const LongSizes&) const { return query_head; }
    constexpr int block(const LongSizes&) const { return at; }
  };
  constexpr Place begin(const LongSizes& z) const {
    return {first / z.head_blocks, mirrored ? z.head_blocks - 1 : z.head_blocks - visible};
  }
  constexpr Place next(const Place& p, int /*j*/, const LongSizes& z) const {
    const int low = z.head_blocks - visible, high = z.head_blocks - 1;
    if (p.at == (mirrored ? low : high)) return {p.query_head + 1, mirrored ? high : low};
    return {p.query_head, p.at + (mirrored ? -1 : 1)};
  }
  constexpr Turn turn(int block, const uint16_t* turns) const {
    return {turns[key_block * split_blocks + block - first]};
  }
};

// Where there are too few blocks of keys to fill the device, the queries are split as well. What a
// tile adds to dq reaches the next peer about two blocks later: with as many peers as query blocks
// each would wait, so chunks, of about the same size, hold half as many at most if the heads'
// chunks fill the grid.
inline LongSizes divided_plain(LongSizes z, int sm_count) {
  const int64_t key_tiles = int64_t{z.heads} * z.key_blocks;
  if (key_tiles > 0 && z.query_blocks > 0)
    z.query_splits = static_cast<int>(std::clamp<int64_t>(sm_count / key_tiles, 1, z.query_blocks));
  z.tiles = static_cast<int>(key_tiles * z.query_splits);
  z.grid = std::min(z.tiles, sm_count);
  z.key_chunk = std::max(z.key_blocks, 1);
  const int most = z.query_blocks / z.query_splits / 2;
  if (most < 2 || z.key_blocks <= most) return z;
  const int chunk = ceil_div(z.key_blocks, ceil_div(z.key_blocks, most));
  if (int64_t{z.heads} * z.query_splits * chunk >= z.grid) z.key_chunk = chunk;
  return z;
}

// Pairs of tiles, in waves of whole heads; splits are whole query heads. The fewest splits that are
// within a tenth of the fastest.
inline LongSizes divided_causal(LongSizes z, int sm_count) {
  const int group = z.query_blocks / z.head_blocks, pairs = CausalTile::pairs(z);
  const int most = sm_count / pairs;  // heads in a wave
  const auto time = [&](int splits) {
    return static_cast<double>(ceil_div(z.heads * splits, most)) / splits;
  };
  for (int splits = 2; splits <= group; ++splits)
    if (group % splits == 0 && time(splits) < .9 * time(z.query_splits)) z.query_splits = splits;
  const int units = z.heads * z.query_splits, at_once = std::min(most, units);
  z.grid = pairs * at_once;
  z.tiles = 2 * static_cast<int>(ceil_div(units, at_once)) * z.grid;
  return z;
}

// When a pair of tiles visits query block `block` of a split with key block `key_block`, in blocks.
constexpr int causal_time(const LongSizes& z, int key_block, int block) {
  const int split_heads = z.query_blocks / z.query_splits / z.head_blocks;
  const int first = CausalTile::first_block(z, key_block), visible = z.head_blocks - first;
  const int earlier = block / z.head_blocks * visible, b = block % z.head_blocks;
  if (key_block < CausalTile::pairs(z)) return earlier + b - first;
  const int image = z.key_blocks - 1 - key_block;
  return split_heads * (z.head_blocks - CausalTile::first_block(z, image)) + earlier +
         z.head_blocks - 1 - b;
}

// The entry of CausalTile's `turns`, [key block, query block of the split]. At one time, the lower
// key block comes first. A tile visits its blocks in the order of time, and waits for earlier ones
// only, or lower key blocks at the same time: no deadlock.
constexpr uint16_t causal_turn(const LongSizes& z, int key_block, int block) {
  const int b = block % z.head_blocks, time = causal_time(z, key_block, block);
  int rank = 0, count = 0;
  for (int k = 0; k < z.key_blocks && CausalTile::first_block(z, k) <= b; ++k) {
    const int other = causal_time(z, k, block);
    rank += other < time || (other == time && k < key_block) ? 1 : 0;
    ++count;
  }
  return static_cast<uint16_t>(CausalTile::Turn::of(rank, rank + 1 == count).code);
}

}  // namespace ebb::ops::cuda
