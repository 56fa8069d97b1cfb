// attention in tiles of 64 queries by 256 keys, with an online softmax. Keys are packed once as
// transposed panels; scores are in units of log 2. All arithmetic is f32.
#include <omp.h>

#include <cmath>
#include <limits>

#include "ir/kernel.h"
#include "ops/prim/attention/cpu_head.h"

namespace ebb::ops::cpu {
namespace {

using ebb::cpu::kTileLanes;
using ebb::cpu::TileKernels;

constexpr int64_t kKeyBlock = 4 * kPanel;
constexpr double kLog2e = 1.4426950408889634;

struct Task {
  AttentionSizes z;
  ScoreMask mask;
  DType dtype = DType::f32;
  const TileKernels* tiles = nullptr;
  int64_t width = 0, panels = 0, blocks = 0;  // K rounded up; key panels; query blocks
  int threads = 1;
  // Workspace offsets in floats: packed keys and values, and a set of tiles per thread.
  int64_t keys = 0, values = 0, own = 0, own_size = 0;
  int64_t score_at = 0, query_at = 0, result_at = 0, row_max_at = 0, sum_at = 0;  // in a tile set
  int64_t workspace = 0;
};

Task plan(const Signature& s) {
  const AttentionSizes z = attention_sizes(s);
  Task k{.z = z, .mask = {z, s}, .dtype = s.in[0].dtype};
  k.tiles = &ebb::cpu::tile_kernels();
  k.width = rounded_up(k.z.k, kTileLanes);
  k.panels = rounded_up(k.z.s, kPanel) / kPanel;
  k.blocks = rounded_up(k.z.t, kQueryBlock) / kQueryBlock;
  k.threads = omp_get_max_threads();
  Carver tile;
  k.score_at = tile.take(kQueryBlock * kKeyBlock);
  k.query_at = tile.take(kQueryBlock * k.width);
  k.result_at = tile.take(kQueryBlock * k.width);
  k.row_max_at = tile.take(kQueryBlock);
  k.sum_at = tile.take(kQueryBlock);
  k.own_size = tile.bytes() / 4;
  Carver all;
  k.keys = all.take(k.z.n * k.z.a * k.panels * kPanel * k.z.k);
  k.values = all.take(k.z.n * k.z.a * k.z.s * k.width);
  k.own = all.take(k.own_size * k.threads);
  k.workspace = all.bytes();
  return k;
}

// Packs panel `i` of all heads: keys transposed, values in rows.
void pack(const Task& k, const Call& call, int64_t i) {
  const AttentionSizes& z = k.z;
  auto* const space = static_cast<float*>(call.workspace);
  const int64_t head = i / k.panels, begin = i % k.panels * kPanel;
  const RowRange rows{begin, std::min(kPanel, z.s - begin)};
  read_panel(head_of(z, k.dtype, call.in[1], head, z.s), rows, space + k.keys + i * kPanel * z.k);
  read_rows(head_of(z, k.dtype, call.in[2], head, z.s), rows, 1,
            space + k.values + (head * z.s + begin) * k.width);
}

// One tile: updates the online softmax and the output of `rows` with `keys` of a head.
void add_keys(const Task& k, const ScoreMask& mask, float* own, const float* space, int64_t head,
              RowRange keys, RowRange rows) {
  const int64_t queries = rows.count;
  float* const score = own + k.score_at;
  const int64_t columns = rounded_up(keys.count, kTileLanes);
  for (int64_t j = 0; j < columns; j += kPanel)
    k.tiles->gemm(
        {.m = queries,
         .n = std::min(kPanel, columns - j),
         .k = k.z.k,
         .a = own + k.query_at,
         .a_row = k.width,
         .b = space + k.keys + (head * k.panels + (keys.begin + j) / kPanel) * kPanel * k.z.k,
         .b_row = kPanel,
         .c = score + j,
         .c_row = kKeyBlock});
  if (!k.z.plain()) mask.apply(head, rows, keys, score, kKeyBlock);
  for (int64_t i = 0; i < queries; ++i)
    std::fill(score + i * kKeyBlock + keys.count, score + i * kKeyBlock + columns,
              -std::numeric_limits<float>::infinity());
  k.tiles->softmax({.rows = queries,
                    .n = columns,
                    .s = score,
                    .s_row = kKeyBlock,
                    .row_max = own + k.row_max_at,
                    .sum = own + k.sum_at,
                    .result = own + k.result_at,
                    .result_row = k.width,
                    .width = k.width});
  k.tiles->gemm({.m = queries,
                 .n = k.width,
                 .k = keys.count,
                 .a = score,
                 .a_row = kKeyBlock,
                 .b = space + k.values + (head * k.z.s + keys.begin) * k.width,
                 .b_row = k.width,
                 .c = own + k.result_at,
                 .c_row = k.width,
                 .accumulate = true});
}

// Query block `i` of all heads.
void attend(const Task& k, const Call& call, int64_t i) {
  const AttentionSizes& z = k.z;
  auto* const space = static_cast<float*>(call.workspace);
  float* const own = space + k.own + omp_get_thread_num() * k.own_size;
  const int64_t head = i / k.blocks, begin = i % k.blocks * kQueryBlock;
  const RowRange rows{begin, std::min(kQueryBlock, z.t - begin)};
  read_rows(head_of(z, k.dtype, call.in[0], head, z.t), rows, static_cast<float>(z.scale * kLog2e),
            own + k.query_at);
  float *const row_max = own + k.row_max_at, *const sum = own + k.sum_at;
  std::fill_n(row_max, rows.count, -std::numeric_limits<float>::infinity());
  std::fill_n(sum, rows.count, 0.0f);
  std::fill_n(own + k.result_at, rows.count * k.width, 0.0f);
  const ScoreMask mask = k.mask.of(call);
  const int64_t end = rows.count > 0 ? mask.key_limit(head, begin + rows.count - 1) : 0;
  for (int64_t j = 0; j < end; j += kKeyBlock)
    add_keys(k, mask, own, space, head, {j, std::min(kKeyBlock, end - j)}, rows);
  const Head o = out_head_of(z, k.dtype, call.out[0], head);
  float* const lse = static_cast<float*>(call.out[1]) + head * z.t + begin;
  for (int64_t r = 0; r < rows.count; ++r) {
    const bool masked_row = sum[r] == 0;  // fully masked
    write_rows(o, {begin + r, 1}, masked_row ? 0 : 1 / sum[r], own + k.result_at + r * k.width);
    lse[r] = masked_row ? 0 : static_cast<float>((row_max[r] + std::log2(sum[r])) / kLog2e);
  }
}

Program prepare(const Signature& s, const Tune&, Device&) {
  const Task k = plan(s);
  const auto run = [k](const Call& given) {
    const Call call = unpacked(k.z, k.dtype, given);
#pragma omp parallel num_threads(k.threads)
    {
#pragma omp for
      for (int64_t i = 0; i < k.z.n * k.z.a * k.panels; ++i) pack(k, call, i);
#pragma omp for schedule(dynamic)
      for (int64_t i = 0; i < k.z.n * k.z.a * k.blocks; ++i) attend(k, call, i);
    }
  };
  return {.workspace = k.workspace, .run = run};
}

}  // namespace

std::vector<Kernel> attention() {
  return {{.op = "attention",
           .name = "attention_tiles",
           .supports = +[](const Signature&, const Device&) { return true; },
           .prepare = prepare}};
}

}  // namespace ebb::ops::cpu
