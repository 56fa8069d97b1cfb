// Blocks of 64 queries that meet blocks of keys, with an online softmax: where a thread has its
// tiles, how a block begins and ends. For both CPU kernels of attention, which compute scores and
// results transposed: lanes are queries.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/prim/attention/cpu_head.h"

namespace ebb::ops {

// In floats: the tiles of a thread, and what all keys and values are packed to.
struct QueryTileSizes {
  int64_t scores = 0, weights = 0, queries = 0, result = 0;
  int64_t keys = 0, values = 0;
};

struct QueryTiles {
  QueryTiles(const AttentionSizes& sizes, const QueryTileSizes& t)
      : z(sizes),
        query_blocks(ceil_div(z.t, kQueryBlock)),
        threads(omp_get_max_threads()),
        result_size(t.result) {
    Carver tiles;
    score_at = tiles.take(t.scores);
    weight_at = tiles.take(t.weights);
    query_at = tiles.take(t.queries);
    result_at = tiles.take(t.result);
    rows_at = tiles.take(kQueryBlock * z.k);
    max_at = tiles.take(kQueryBlock);
    sum_at = tiles.take(kQueryBlock);
    own_size = tiles.bytes() / 4;
    Carver all;
    keys = all.take(t.keys);
    values = all.take(t.values);
    own = all.take(own_size * threads);
    workspace = all.bytes();
  }
  int64_t blocks() const { return z.n * z.a * query_blocks; }
  int64_t head_of(int64_t block) const { return block / query_blocks; }
  RowRange rows_of(int64_t block) const {
    const int64_t begin = block % query_blocks * kQueryBlock;
    return {begin, std::min(kQueryBlock, z.t - begin)};
  }
  float* own_tiles(float* space) const { return space + own + omp_get_thread_num() * own_size; }

  // With no key so far.
  void begin(float* tiles) const {
    std::fill_n(tiles + max_at, kQueryBlock, -std::numeric_limits<float>::infinity());
    std::fill_n(tiles + sum_at, kQueryBlock, 0.0f);
    std::fill_n(tiles + result_at, result_size, 0.0f);
  }
  // Writes the rows of a block's output and their lse.
  void end(const Call& call, DType dtype, int64_t block, float* tiles) const;

  AttentionSizes z;
  int64_t query_blocks;  // of a head
  int threads;
  // Offsets in floats, in the workspace: packed keys and values; the tiles of each thread.
  int64_t keys = 0, values = 0, own = 0, own_size = 0;
  // In these: scores [keys,queries] and what the softmax makes of them, where that is a tile of its
  // own; queries [K,queries]; the result [K,queries] and its rows, or those of the queries.
  int64_t score_at = 0, weight_at = 0, query_at = 0, result_at = 0, rows_at = 0, max_at = 0,
          sum_at = 0, result_size;
  int64_t workspace = 0;  // bytes
};

inline void QueryTiles::end(const Call& call, DType dtype, int64_t block, float* tiles) const {
  const RowRange rows = rows_of(block);
  const Head head = ops::head_of(z, z.at.o, dtype, call.out[0], head_of(block));
  auto* const lse = static_cast<float*>(call.out[1]) + head_of(block) * z.t + rows.begin;
  ebb::cpu::tile_kernels().transpose({.rows = z.k,
                                      .columns = rows.count,
                                      .from = tiles + result_at,
                                      .from_row = kQueryBlock,
                                      .to = tiles + rows_at,
                                      .to_row = z.k});
  const float *const max = tiles + max_at, *const sum = tiles + sum_at;
  for (int64_t r = 0; r < rows.count; ++r) {
    const bool masked = sum[r] == 0;  // fully
    write_rows(head, {rows.begin + r, 1}, masked ? 0 : 1 / sum[r], tiles + rows_at + r * z.k, z.k);
    lse[r] = masked ? 0 : static_cast<float>((max[r] + std::log2(sum[r])) / kLog2e);
  }
}

}  // namespace ebb::ops
