// attention in tiles of 64 queries by 96 keys, with an online softmax. Scores and the output are
// computed transposed: lanes are queries, so that neither heads nor keys are padded and the softmax
// works down the columns. Scores are in units of log 2. All arithmetic is f32.
#include <omp.h>

#include <cmath>
#include <limits>

#include "ir/kernel.h"
#include "ops/prim/attention/cpu_amx.h"
#include "ops/prim/attention/cpu_head.h"

namespace ebb::ops::cpu {
namespace {

using ebb::cpu::kTileLanes;
using ebb::cpu::TileKernels;

constexpr int64_t kKeyBlock = 96;
constexpr double kLog2e = 1.4426950408889634;

struct Task {
  AttentionSizes z;
  ScoreMask mask;
  DType dtype = DType::f32;
  const TileKernels* tiles = nullptr;
  int64_t key_blocks = 0, query_blocks = 0;  // of a head
  int threads = 1;
  // Workspace offsets in floats: dense keys and values, and a set of tiles per thread.
  int64_t keys = 0, values = 0, own = 0, own_size = 0;
  // In a tile set: scores [keys,queries], queries and result [K,queries], either one's rows.
  int64_t score_at = 0, query_at = 0, result_at = 0, rows_at = 0, max_at = 0, sum_at = 0;
  int64_t workspace = 0;

  int64_t heads() const { return z.n * z.a; }
  int64_t key_heads() const { return z.n * z.key_heads; }
};

Task plan(const Signature& s) {
  const AttentionSizes z = attention_sizes(s);
  Task k{.z = z, .mask = {z, s}, .dtype = s.in[0].dtype};
  k.tiles = &ebb::cpu::tile_kernels();
  k.key_blocks = rounded_up(z.s, kKeyBlock) / kKeyBlock;
  k.query_blocks = rounded_up(z.t, kQueryBlock) / kQueryBlock;
  k.threads = omp_get_max_threads();
  Carver tile;
  k.score_at = tile.take(kQueryBlock * kKeyBlock);
  k.query_at = tile.take(kQueryBlock * z.k);
  k.result_at = tile.take(kQueryBlock * z.k);
  k.rows_at = tile.take(kQueryBlock * z.k);
  k.max_at = tile.take(kQueryBlock);
  k.sum_at = tile.take(kQueryBlock);
  k.own_size = tile.bytes() / 4;
  Carver all;
  k.keys = all.take(k.key_heads() * z.s * z.k);
  k.values = all.take(k.key_heads() * z.s * z.k);
  k.own = all.take(k.own_size * k.threads);
  k.workspace = all.bytes();
  return k;
}

// Packs key block `i` of all heads of k and v.
void pack(const Task& k, const Call& call, int64_t i) {
  const AttentionSizes& z = k.z;
  auto* const space = static_cast<float*>(call.workspace);
  const int64_t head = i / k.key_blocks, begin = i % k.key_blocks * kKeyBlock;
  const RowRange rows{begin, std::min(kKeyBlock, z.s - begin)};
  const int64_t at = (head * z.s + begin) * z.k;
  read_rows(key_head_of(z, k.dtype, call.in[1], head), rows, 1, space + k.keys + at, z.k);
  read_rows(key_head_of(z, k.dtype, call.in[2], head), rows, 1, space + k.values + at, z.k);
}

// One tile: updates the online softmax and the output of `rows` with `keys` of a head.
void add_keys(const Task& k, const ScoreMask& mask, float* own, const float* space, int64_t head,
              RowRange keys, RowRange rows) {
  const int64_t queries = rounded_up(rows.count, kTileLanes);
  const int64_t at = (head / k.z.group() * k.z.s + keys.begin) * k.z.k;
  float* const score = own + k.score_at;
  k.tiles->gemm({.m = keys.count,
                 .n = queries,
                 .k = k.z.k,
                 .a = space + k.keys + at,
                 .a_row = k.z.k,
                 .b = own + k.query_at,
                 .b_row = kQueryBlock,
                 .c = score,
                 .c_row = kQueryBlock});
  if (!k.z.plain()) mask.apply(head, rows, keys, score, {.query = 1, .key = kQueryBlock});
  k.tiles->softmax({.keys = keys.count,
                    .n = queries,
                    .s = score,
                    .s_row = kQueryBlock,
                    .max = own + k.max_at,
                    .sum = own + k.sum_at,
                    .result = own + k.result_at,
                    .result_row = kQueryBlock,
                    .width = k.z.k});
  k.tiles->gemm({.m = k.z.k,
                 .n = queries,
                 .k = keys.count,
                 .a = space + k.values + at,
                 .a_row = 1,
                 .a_col = k.z.k,
                 .b = score,
                 .b_row = kQueryBlock,
                 .c = own + k.result_at,
                 .c_row = kQueryBlock,
                 .accumulate = true});
}

// Reads `rows` of a head's queries, in units of log 2, and begins with no key.
void begin_queries(const Task& k, const Head& head, RowRange rows, float* own) {
  const auto factor = static_cast<float>(k.z.scale * kLog2e);
  std::fill_n(own + k.query_at, kQueryBlock * k.z.k, 0.0f);
  read_rows(head, rows, factor, own + k.rows_at, k.z.k);
  k.tiles->transpose({.rows = rows.count,
                      .columns = k.z.k,
                      .from = own + k.rows_at,
                      .from_row = k.z.k,
                      .to = own + k.query_at,
                      .to_row = kQueryBlock});
  std::fill_n(own + k.max_at, kQueryBlock, -std::numeric_limits<float>::infinity());
  std::fill_n(own + k.sum_at, kQueryBlock, 0.0f);
  std::fill_n(own + k.result_at, kQueryBlock * k.z.k, 0.0f);
}

// Writes `rows` of a head's output and their lse.
void end_queries(const Task& k, const Head& head, RowRange rows, float* own, float* lse) {
  const AttentionSizes& z = k.z;
  k.tiles->transpose({.rows = z.k,
                      .columns = rows.count,
                      .from = own + k.result_at,
                      .from_row = kQueryBlock,
                      .to = own + k.rows_at,
                      .to_row = z.k});
  const float *const max = own + k.max_at, *const sum = own + k.sum_at;
  for (int64_t r = 0; r < rows.count; ++r) {
    const bool masked = sum[r] == 0;  // fully
    write_rows(head, {rows.begin + r, 1}, masked ? 0 : 1 / sum[r], own + k.rows_at + r * z.k, z.k);
    lse[r] = masked ? 0 : static_cast<float>((max[r] + std::log2(sum[r])) / kLog2e);
  }
}

// Query block `i` of all heads.
void attend(const Task& k, const Call& call, int64_t i) {
  const AttentionSizes& z = k.z;
  auto* const space = static_cast<float*>(call.workspace);
  float* const own = space + k.own + omp_get_thread_num() * k.own_size;
  const int64_t head = i / k.query_blocks, begin = i % k.query_blocks * kQueryBlock;
  const RowRange rows{begin, std::min(kQueryBlock, z.t - begin)};
  begin_queries(k, head_of(z, k.dtype, call.in[0], head, z.t), rows, own);
  const ScoreMask mask = k.mask.of(call);
  const int64_t end = mask.key_limit(head, begin + rows.count - 1);
  for (int64_t j = 0; j < end; j += kKeyBlock)
    add_keys(k, mask, own, space, head, {j, std::min(kKeyBlock, end - j)}, rows);
  end_queries(k, out_head_of(z, k.dtype, call.out[0], head), rows, own,
              static_cast<float*>(call.out[1]) + head * z.t + begin);
}

Program prepare(const Signature& s, const Tune&, Device&) {
  const Task k = plan(s);
  const auto run = [k](const Call& given) {
    const Call call = unpacked(k.z, k.dtype, given);
#pragma omp parallel num_threads(k.threads)
    {
#pragma omp for
      for (int64_t i = 0; i < k.key_heads() * k.key_blocks; ++i) pack(k, call, i);
#pragma omp for schedule(dynamic)
      for (int64_t i = 0; i < k.heads() * k.query_blocks; ++i) attend(k, call, i);
    }
  };
  return {.workspace = k.workspace, .run = run};
}

}  // namespace

std::vector<Kernel> attention() {
  return {{.op = "attention",
           .name = "attention_amx",
           .supports = amx_attention_supports,
           .prepare = prepare_amx_attention,
           .efficiency = {.3, .8}},
          {.op = "attention",
           .name = "attention_tiles",
           .supports = +[](const Signature&, const Device&) { return true; },
           .prepare = prepare,
           .efficiency = {.1, .8}}};
}

}  // namespace ebb::ops::cpu
