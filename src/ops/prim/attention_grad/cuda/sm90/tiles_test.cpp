// The order in which tiles of the long attention_grad add to dq: complete, and free of deadlocks.
#include "ops/prim/attention_grad/cuda/sm90/tiles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <vector>

namespace ebb::ops::cuda {
namespace {

struct Visit {
  int unit, key_block, block, rank;
  bool last;
};

// Every thread block's visits, in its order.
template <class Tile>
std::vector<std::vector<Visit>> visits(const LongSizes& z, int grid,
                                       const std::vector<uint16_t>& turns) {
  std::vector<std::vector<Visit>> all(static_cast<size_t>(grid));
  for (int i = 0; i < z.tiles; ++i) {
    const Tile t = Tile::at(z, grid, i);
    const int unit = t.head * z.query_splits + t.query_split;
    bool more = false;
    for (int k = i + grid; k < z.tiles; k += grid) more |= Tile::at(z, grid, k).blocks > 0;
    EXPECT_TRUE(t.blocks == 0 || Tile::more(z, grid, i) == more) << i;
    auto x = t.begin(z);
    for (int j = 0; j < t.blocks; ++j, x = t.next(x, j, z)) {
      const auto turn = t.turn(x.index(z), turns.data());
      all[static_cast<size_t>(i % grid)].push_back(
          {unit, t.key_block, x.index(z), turn.rank(), turn.last(z)});
    }
  }
  return all;
}

// Lets all thread blocks take a step at a time, those that wait for others none. What one adds is
// seen by others `latency` steps later. Returns the number of steps, or -1 for a deadlock.
int steps_of(const std::vector<std::vector<Visit>>& visits, size_t latency = 1) {
  std::map<std::pair<int, int>, int> added;
  std::vector<size_t> at(visits.size());
  std::deque<std::vector<const Visit*>> unseen(latency);  // of the latest steps
  for (int steps = 0;; ++steps) {
    for (const Visit* v : unseen.front()) ++added[{v->unit, v->block}];
    unseen.pop_front();
    bool done = true;
    std::vector<const Visit*> now;
    for (size_t c = 0; c < visits.size(); ++c) {
      if (at[c] == visits[c].size()) continue;
      done = false;
      const Visit& v = visits[c][at[c]];
      if (added[{v.unit, v.block}] == v.rank) now.push_back(&v), ++at[c];
    }
    if (done) return steps;
    unseen.push_back(now);
    if (std::ranges::all_of(unseen, [](const auto& x) { return x.empty(); })) return -1;
  }
}

// Each pair of blocks that sees each other is visited once, and the last visit of a query block is
// marked as such.
void expect_complete(const LongSizes& z, const std::vector<std::vector<Visit>>& visits,
                     bool causal) {
  std::map<std::pair<int, int>, std::vector<int>> keys, last;
  for (const auto& of_block : visits)
    for (const Visit& v : of_block) {
      keys[{v.unit, v.block}].push_back(v.key_block);
      if (v.last) last[{v.unit, v.block}].push_back(v.rank);
    }
  EXPECT_EQ(keys.size(), static_cast<size_t>(z.heads * z.query_blocks));
  for (auto& [at, seen] : keys) {
    std::sort(seen.begin(), seen.end());
    std::vector<int> wanted;
    for (int k = 0; k < z.key_blocks; ++k)
      if (!causal || CausalTile::first_block(z, k) <= at.second % z.head_blocks)
        wanted.push_back(k);
    EXPECT_EQ(seen, wanted) << "query block " << at.second;
    EXPECT_EQ(last[at], std::vector<int>{static_cast<int>(wanted.size()) - 1});
  }
}

LongSizes sizes(int heads, int key_blocks, int head_blocks, int group, int splits) {
  return {.heads = heads,
          .key_blocks = key_blocks,
          .head_blocks = head_blocks,
          .query_blocks = group * head_blocks,
          .query_splits = splits};
}

TEST(AttentionGradTiles, plain__complete_without_deadlock) {
  for (LongSizes z : {sizes(3, 5, 7, 1, 1), sizes(1, 3, 4, 4, 1), sizes(1, 40, 9, 2, 1),
                      sizes(5, 1, 6, 1, 1), sizes(4, 33, 70, 1, 1), sizes(40, 9, 8, 1, 1)}) {
    z = divided_plain(z, 12);
    const auto all = visits<PlainTile>(z, z.grid, {});
    expect_complete(z, all, false);
    EXPECT_GT(steps_of(all), 0) << z.key_blocks << " blocks of keys";
  }
}

// With many heads little time is spent on waiting, though others see only two steps later what a
// tile has added to dq. It would be as much again without chunks.
TEST(AttentionGradTiles, plain__hardly_waits) {
  for (const LongSizes& of :
       {sizes(128, 32, 32, 1, 1), sizes(256, 8, 8, 1, 1), sizes(128, 8, 16, 1, 1),
        sizes(40, 32, 32, 1, 1), sizes(32, 16, 16, 1, 1), sizes(16, 33, 33, 1, 1),
        sizes(20, 33, 33, 1, 1), sizes(70, 9, 9, 1, 1)}) {
    const LongSizes z = divided_plain(of, 132);
    const auto all = visits<PlainTile>(z, z.grid, {});
    size_t most = 0;
    for (const auto& of_block : all) most = std::max(most, of_block.size());
    EXPECT_LT(steps_of(all, 2), 1.05 * static_cast<double>(most)) << of.heads << " heads";
  }
}

// Nowhere are chunks slower than none, whether or not they divide the blocks.
TEST(AttentionGradTiles, plain__chunks_are_not_slower) {
  for (const int heads : {5, 19, 24, 36, 70})
    for (const int blocks : {5, 9, 11, 14, 17, 20}) {
      const LongSizes z = divided_plain(sizes(heads, blocks, blocks + 1, 1, 1), 24);
      LongSizes whole = z;
      whole.key_chunk = z.key_blocks;
      EXPECT_LE(steps_of(visits<PlainTile>(z, z.grid, {}), 2),
                steps_of(visits<PlainTile>(whole, whole.grid, {}), 2))
          << heads << " heads of " << blocks << " blocks in chunks of " << z.key_chunk;
    }
}

struct CausalCase {
  int keys, queries;  // of a head
  int heads, group, sm_count;
};

TEST(AttentionGradTiles, causal__complete_without_deadlock) {
  for (const int block : {64, 128})  // queries
    for (const CausalCase& c : {CausalCase{8192, 8192, 8, 4, 132}, CausalCase{300, 300, 2, 4, 132},
                                CausalCase{77, 77, 12, 1, 132}, CausalCase{4096, 1000, 3, 2, 40},
                                CausalCase{1100, 1090, 7, 3, 13}, CausalCase{640, 640, 5, 1, 7},
                                CausalCase{1200, 1200, 52, 2, 132}}) {
      LongSizes z =
          sizes(c.heads, (c.keys + 127) / 128, (c.queries + block - 1) / block, c.group, 1);
      z.keys = 128, z.queries = block, z.diagonal = c.keys - c.queries;
      z = divided_causal(z, c.sm_count);
      ASSERT_LE(z.grid, c.sm_count);
      std::vector<uint16_t> turns;
      const int blocks = z.query_blocks / z.query_splits;
      for (int i = 0; i < z.key_blocks * blocks; ++i)
        turns.push_back(causal_turn(z, i / blocks, i % blocks));
      const auto all = visits<CausalTile>(z, z.grid, turns);
      expect_complete(z, all, true);
      const int steps = steps_of(all);
      EXPECT_GT(steps, 0) << c.keys << " keys";
      if (c.keys != 8192) continue;
      // Of 8192 tokens, hardly any time is spent on waiting.
      for (const auto& of_block : all)
        EXPECT_LT(steps, 1.05 * static_cast<double>(of_block.size()));
    }
}

}  // namespace
}  // namespace ebb::ops::cuda
