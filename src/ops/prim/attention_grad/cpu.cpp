// attention_grad in tiles: for each block of 128 keys all queries in blocks of 64. The keys of a
// head may be split for parallelism; each split accumulates its own dq, and the splits are added in
// order, so the bits do not depend on the number of threads. All arithmetic is f32.
#include <omp.h>

#include <cmath>

#include "ir/kernel.h"
#include "ops/prim/attention/cpu_head.h"
#include "ops/prim/attention_grad/op.h"

namespace ebb::ops::cpu {
namespace {

using ebb::cpu::kTileLanes;
using ebb::cpu::TileKernels;

constexpr int64_t kKeyBlock = 2 * kPanel;
constexpr int64_t kMinWorkUnits = 16;  // if there are enough keys

struct Task {
  AttentionSizes z;
  ScoreMask mask;
  DType dtype = DType::f32, lse_dtype = DType::f32, dlse_dtype = DType::f32;
  size_t at = 3;  // of o, in an unpacked call
  const TileKernels* tiles = nullptr;
  // K rounded up; key panels, query blocks and key blocks per head; splits of the keys
  int64_t width = 0, panels = 0, query_blocks = 0, key_blocks = 0, key_splits = 1;
  int threads = 1;
  // Workspace offsets in floats. Packed: queries times scale * log2(e), do, keys; keys and values
  // transposed in panels; lse_log2 (shift) and delta of each query; dq of every split; tiles of
  // each thread.
  int64_t query = 0, dout = 0, key = 0, key_panel = 0, value_panel = 0, shift = 0, delta = 0;
  int64_t dq = 0, own = 0, own_size = 0;
  int64_t score_at = 0, dscore_at = 0, dk_at = 0, dv_at = 0;  // in the tiles of a thread
  int64_t workspace = 0;

  int64_t heads() const { return z.n * z.a; }
};

void plan_workspace(Task& k) {
  Carver tile;
  k.score_at = tile.take(kQueryBlock * kKeyBlock);
  k.dscore_at = tile.take(kQueryBlock * kKeyBlock);
  k.dk_at = tile.take(kKeyBlock * k.width);
  k.dv_at = tile.take(kKeyBlock * k.width);
  k.own_size = tile.bytes() / 4;
  Carver all;
  const int64_t queries = k.heads() * k.z.t, panels = k.heads() * k.panels * kPanel * k.z.k;
  k.query = all.take(queries * k.width);
  k.dout = all.take(queries * k.width);
  k.key = all.take(k.heads() * k.z.s * k.width);
  k.key_panel = all.take(panels);
  k.value_panel = all.take(panels);
  k.shift = all.take(queries);
  k.delta = all.take(queries);
  k.dq = all.take(k.key_splits * queries * k.width);
  k.own = all.take(k.own_size * k.threads);
  k.workspace = all.bytes();
}

Task plan(const Signature& s) {
  const AttentionSizes z = attention_grad_sizes(s);
  Task k{.z = z, .mask = {z, s}, .dtype = s.in[0].dtype, .at = call_at(z).o};
  const size_t lse = k.z.operands() + 1;
  k.lse_dtype = s.in[lse].dtype;
  if (s.in.size() == lse + 3) k.dlse_dtype = s.in[lse + 2].dtype;
  k.tiles = &ebb::cpu::tile_kernels();
  k.width = rounded_up(k.z.k, kTileLanes);
  k.panels = rounded_up(k.z.s, kPanel) / kPanel;
  k.query_blocks = rounded_up(k.z.t, kQueryBlock) / kQueryBlock;
  k.key_blocks = rounded_up(k.z.s, kKeyBlock) / kKeyBlock;
  k.threads = omp_get_max_threads();
  const int64_t wanted = rounded_up(kMinWorkUnits, std::max<int64_t>(k.heads(), 1));
  k.key_splits = std::min(k.key_blocks, wanted / std::max<int64_t>(k.heads(), 1));
  plan_workspace(k);
  return k;
}

void pack_keys(const Task& k, const Call& call, int64_t i) {
  const AttentionSizes& z = k.z;
  auto* const space = static_cast<float*>(call.workspace);
  const int64_t head = i / k.panels, begin = i % k.panels * kPanel, panel = i * kPanel * z.k;
  const RowRange rows{begin, std::min(kPanel, z.s - begin)};
  const Head key = head_of(z, z.at.k, k.dtype, call.in[1], head);
  read_panel(key, rows, space + k.key_panel + panel);
  read_rows(key, rows, 1, space + k.key + (head * z.s + begin) * k.width, k.width);
  read_panel(head_of(z, z.at.v, k.dtype, call.in[2], head), rows, space + k.value_panel + panel);
}

float element(DType dtype, const void* p, int64_t i) {
  return visit_dtype(dtype, [&](auto zero) {
    return static_cast<float>(static_cast<const decltype(zero)*>(p)[i]);
  });
}

// delta = sum over K of o * do, minus dlse.
void pack_queries(const Task& k, const Call& call, int64_t i) {
  const AttentionSizes& z = k.z;
  auto* const space = static_cast<float*>(call.workspace);
  const int64_t head = i / k.query_blocks, begin = i % k.query_blocks * kQueryBlock;
  const int64_t first = head * z.t + begin;
  const RowRange rows{begin, std::min(kQueryBlock, z.t - begin)};
  float *const query = space + k.query + first * k.width, *const dout =
                                                              space + k.dout + first * k.width;
  read_rows(head_of(z, z.at.o, k.dtype, call.in[k.at], head), rows, 1, query,
            k.width);  // o, replaced by q below
  read_rows(head_of(z, z.at.dout, k.dtype, call.in[k.at + 2], head), rows, 1, dout, k.width);
  for (int64_t r = 0; r < rows.count; ++r) {
    float sum =
        call.in.size() == k.at + 4 ? -element(k.dlse_dtype, call.in[k.at + 3], first + r) : 0.0f;
    for (int64_t d = 0; d < z.k; ++d) sum += query[r * k.width + d] * dout[r * k.width + d];
    space[k.delta + first + r] = sum;
    const double lse = element(k.lse_dtype, call.in[k.at + 1], first + r);
    space[k.shift + first + r] = static_cast<float>(lse * kLog2e);
  }
  read_rows(head_of(z, z.at.q, k.dtype, call.in[0], head), rows,
            static_cast<float>(z.scale * kLog2e), query, k.width);
}

// A tile: `queries` of a head (counted over all heads) against `keys` of it, with its dq.
struct Tile {
  int64_t head = 0;
  RowRange queries, keys;
  float* dq = nullptr;
  const ScoreMask* mask = nullptr;
};

// c [queries, keys] = a [queries, K] times panels.
void gemm_panels(const Task& k, const Tile& t, const float* a, const float* panels, float* c) {
  const int64_t columns = rounded_up(t.keys.count, kTileLanes);
  for (int64_t j = 0; j < columns; j += kPanel)
    k.tiles->gemm({.m = t.queries.count,
                   .n = std::min(kPanel, columns - j),
                   .k = k.z.k,
                   .a = a,
                   .a_row = k.width,
                   .b = panels + (t.head * k.panels + (t.keys.begin + j) / kPanel) * kPanel * k.z.k,
                   .b_row = kPanel,
                   .c = c + j,
                   .c_row = kKeyBlock});
}

// sum [keys, K] += a^T [keys, queries] times b [queries, K].
void add_transposed(const Task& k, const Tile& t, const float* a, const float* b, float* sum) {
  k.tiles->gemm({.m = t.keys.count,
                 .n = k.width,
                 .k = t.queries.count,
                 .a = a,
                 .a_row = 1,
                 .a_col = kKeyBlock,
                 .b = b,
                 .b_row = k.width,
                 .c = sum,
                 .c_row = k.width,
                 .accumulate = true});
}

void run_tile(const Task& k, const Tile& t, float* space, float* own) {
  float *const score = own + k.score_at, *const dscore = own + k.dscore_at;
  const float* const query = space + k.query + t.queries.begin * k.width;
  const float* const dout = space + k.dout + t.queries.begin * k.width;
  gemm_panels(k, t, query, space + k.key_panel, score);
  gemm_panels(k, t, dout, space + k.value_panel, dscore);
  if (!k.z.plain())
    t.mask->apply(t.head, {t.queries.begin - t.head * k.z.t, t.queries.count}, t.keys, score,
                  {.query = kKeyBlock, .key = 1});
  k.tiles->softmax_grad({.rows = t.queries.count,
                         .n = rounded_up(t.keys.count, kTileLanes),
                         .s = score,
                         .dp = dscore,
                         .row = kKeyBlock,
                         .shift = space + k.shift + t.queries.begin,
                         .delta = space + k.delta + t.queries.begin});
  add_transposed(k, t, score, dout, own + k.dv_at);
  add_transposed(k, t, dscore, query, own + k.dk_at);
  k.tiles->gemm({.m = t.queries.count,
                 .n = k.width,
                 .k = t.keys.count,
                 .a = dscore,
                 .a_row = kKeyBlock,
                 .b = space + k.key + (t.head * k.z.s + t.keys.begin) * k.width,
                 .b_row = k.width,
                 .c = t.dq,
                 .c_row = k.width,
                 .accumulate = true});
}

// Split `i` of the keys of all heads.
void run_split(const Task& k, const Call& call, int64_t i) {
  const AttentionSizes& z = k.z;
  auto* const space = static_cast<float*>(call.workspace);
  float* const own = space + k.own + omp_get_thread_num() * k.own_size;
  const int64_t head = i / k.key_splits, split = i % k.key_splits;
  float* const dq = space + k.dq + (split * k.heads() + head) * z.t * k.width;
  std::fill_n(dq, z.t * k.width, 0.0f);
  const Head dk = head_of(z, z.at.dk, k.dtype, call.out[1], head);
  const Head dv = head_of(z, z.at.dv, k.dtype, call.out[2], head);
  const ScoreMask mask = k.mask.of(call);
  const int64_t end = k.key_blocks * (split + 1) / k.key_splits;
  for (int64_t block = k.key_blocks * split / k.key_splits; block < end; ++block) {
    const RowRange keys{block * kKeyBlock, std::min(kKeyBlock, z.s - block * kKeyBlock)};
    std::fill_n(own + k.dk_at, keys.count * k.width, 0.0f);
    std::fill_n(own + k.dv_at, keys.count * k.width, 0.0f);
    for (int64_t q = 0; q < z.t; q += kQueryBlock) {
      const RowRange queries{head * z.t + q, std::min(kQueryBlock, z.t - q)};
      if (mask.key_limit(head, q + queries.count - 1) <= keys.begin) continue;
      run_tile(k, {head, queries, keys, dq + q * k.width, &mask}, space, own);
    }
    write_rows(dk, keys, static_cast<float>(1 / kLog2e), own + k.dk_at,
               k.width);  // queries held the scale
    write_rows(dv, keys, 1, own + k.dv_at, k.width);
  }
}

// dq of query block `i` of all heads: the sum over the splits, in order.
void finish(const Task& k, const Call& call, int64_t i) {
  const AttentionSizes& z = k.z;
  auto* const space = static_cast<float*>(call.workspace);
  const int64_t head = i / k.query_blocks, begin = i % k.query_blocks * kQueryBlock;
  const RowRange rows{begin, std::min(kQueryBlock, z.t - begin)};
  const int64_t step = k.heads() * z.t * k.width, count = rows.count * k.width;
  float* const sum = space + k.dq + (head * z.t + begin) * k.width;
  for (int64_t split = 1; split < k.key_splits; ++split)
#pragma omp simd
    for (int64_t j = 0; j < count; ++j) sum[j] += sum[split * step + j];
  write_rows(head_of(z, z.at.dq, k.dtype, call.out[0], head), rows, static_cast<float>(z.scale),
             sum, k.width);
}

Program prepare(const Signature& s, const Tune&, Device&) {
  const Task k = plan(s);
  const auto run = [k](const Call& given) {
    const Call call = unpacked(k.z, k.dtype, given);
#pragma omp parallel num_threads(k.threads)
    {
#pragma omp for nowait
      for (int64_t i = 0; i < k.heads() * k.panels; ++i) pack_keys(k, call, i);
#pragma omp for
      for (int64_t i = 0; i < k.heads() * k.query_blocks; ++i) pack_queries(k, call, i);
#pragma omp for schedule(dynamic)
      for (int64_t i = 0; i < k.heads() * k.key_splits; ++i) run_split(k, call, i);
#pragma omp for
      for (int64_t i = 0; i < k.heads() * k.query_blocks; ++i) finish(k, call, i);
    }
  };
  return {.workspace = k.workspace, .run = run};
}

}  // namespace

std::vector<Kernel> attention_grad() {
  return {{.op = "attention_grad",
           .name = "attention_grad_tiles",
           .supports =
               +[](const Signature& s, const Device&) { return attention_sizes(s).group() == 1; },
           .prepare = prepare}};
}

}  // namespace ebb::ops::cpu
