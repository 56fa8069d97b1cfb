// attention in tiles of 64 queries by 96 keys, with an online softmax. Scores and the output are
// computed transposed: lanes are queries, so that neither heads nor keys are padded and the softmax
// works down the columns. Scores are in units of log 2. All arithmetic is f32.
#include "ir/kernel.h"
#include "ir/roofline.h"
#include "ops/prim/attention/cpu_amx.h"
#include "ops/prim/attention/cpu_queries.h"

namespace ebb::ops::cpu {
namespace {

using ebb::cpu::kTileLanes;
using ebb::cpu::TileKernels;

constexpr int64_t kKeyBlock = 96;

struct Task : QueryTiles {
  Task(const AttentionSizes& sizes, const Signature& s)
      : QueryTiles(sizes, {.scores = kQueryBlock * kKeyBlock,
                           .queries = kQueryBlock * sizes.k,
                           .result = kQueryBlock * sizes.k,
                           .keys = sizes.n * sizes.key_heads * sizes.s * sizes.k,
                           .values = sizes.n * sizes.key_heads * sizes.s * sizes.k}),
        mask(z, s),
        dtype(s.in[0].dtype),
        key_blocks(ceil_div(z.s, kKeyBlock)) {}

  ScoreMask mask;
  DType dtype;
  int64_t key_blocks;  // of a head
  const TileKernels* tiles = &ebb::cpu::tile_kernels();
};

// Packs key block `i` of all heads of k and v.
void pack(const Task& k, const Call& call, int64_t i) {
  const AttentionSizes& z = k.z;
  auto* const space = static_cast<float*>(call.workspace);
  const int64_t head = i / k.key_blocks, begin = i % k.key_blocks * kKeyBlock;
  const RowRange rows{begin, std::min(kKeyBlock, z.s - begin)};
  const int64_t at = (head * z.s + begin) * z.k;
  read_rows(key_head_of(z, z.at.k, k.dtype, call.in[1], head), rows, 1, space + k.keys + at, z.k);
  read_rows(key_head_of(z, z.at.v, k.dtype, call.in[2], head), rows, 1, space + k.values + at, z.k);
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
  k.begin(own);
}

// Query block `i` of all heads.
void attend(const Task& k, const Call& call, int64_t i) {
  const AttentionSizes& z = k.z;
  auto* const space = static_cast<float*>(call.workspace);
  float* const own = k.own_tiles(space);
  const int64_t head = k.head_of(i);
  const RowRange rows = k.rows_of(i);
  begin_queries(k, head_of(z, z.at.q, k.dtype, call.in[0], head), rows, own);
  const ScoreMask mask = k.mask.of(call);
  const int64_t end = mask.key_limit(head, rows.begin + rows.count - 1);
  for (int64_t j = 0; j < end; j += kKeyBlock)
    add_keys(k, mask, own, space, head, {j, std::min(kKeyBlock, end - j)}, rows);
  k.end(call, k.dtype, i, own);
}

Program prepare(const Signature& s, const Tune&, Device&) {
  const Task k(attention_sizes(s), s);
  const auto run = [k](const Call& given) {
    const Call call = unpacked(k.z, k.dtype, given);
#pragma omp parallel num_threads(k.threads)
    {
#pragma omp for
      for (int64_t i = 0; i < k.z.n * k.z.key_heads * k.key_blocks; ++i) pack(k, call, i);
#pragma omp for schedule(dynamic)
      for (int64_t i = 0; i < k.blocks(); ++i) attend(k, call, i);
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
           .cost = roofline<30, 80>},
          {.op = "attention",
           .name = "attention_tiles",
           .supports = +[](const Signature&, const Device&) { return true; },
           .prepare = prepare,
           .cost = roofline<10, 80>}};
}

}  // namespace ebb::ops::cpu
