// attention in tiles of 64 queries by 128 keys, as in cpu.cpp, with both products on matrix tiles
// (AMX): scores [keys,queries] = k q^T, the result [K,queries] = v^T p. What the softmax makes of
// the scores is rounded to bf16 in between; all sums are f32.
#include "ops/prim/attention/cpu_amx.h"

#include "backend/cpu/simd/amx.h"
#include "ops/prim/attention/cpu_queries.h"

namespace ebb::ops::cpu {
namespace {

using ebb::cpu::AmxKernels;
using ebb::cpu::kTileDepth;
using ebb::cpu::kTileRows;
using ebb::cpu::kTileSize;

constexpr int64_t kAmxKeyBlock = 128;

// In whole tiles: K as a width and as rows, keys of a head.
struct WholeTiles {
  int64_t width, rows, key_count;
};
WholeTiles whole_tiles(const AttentionSizes& z) {
  return {rounded_up(z.k, kTileDepth), rounded_up(z.k, kTileRows), rounded_up(z.s, kTileDepth)};
}

// Keys are packed to left operands [keys,K], values to [K,keys].
QueryTileSizes sizes_of(const AttentionSizes& z, const WholeTiles& t) {
  return {.scores = kQueryBlock * kAmxKeyBlock,
          .weights = kQueryBlock * kAmxKeyBlock / 2,
          .queries = kQueryBlock * t.width / 2,
          .result = kQueryBlock * t.rows,
          .keys = z.n * z.key_heads * t.key_count * t.width / 2,
          .values = z.n * z.key_heads * t.key_count * t.rows / 2};
}

struct AmxTask : QueryTiles, WholeTiles {
  explicit AmxTask(const AttentionSizes& sizes)
      : QueryTiles(sizes, sizes_of(sizes, whole_tiles(sizes))), WholeTiles(whole_tiles(sizes)) {
    workspace += 64;  // to begin on a cache line
  }

  const AmxKernels* amx = ebb::cpu::amx_kernels();
};

float* space_of(const Call& call) {
  const auto at = reinterpret_cast<uintptr_t>(call.workspace);
  return reinterpret_cast<float*>(rounded_up(static_cast<int64_t>(at), 64));
}

uint16_t* numbers(float* at) { return reinterpret_cast<uint16_t*>(at); }

const uint16_t* first_of(const Head& h) { return static_cast<const uint16_t*>(h.first); }

uint16_t* keys_of(const AmxTask& k, float* space, int64_t key_head) {
  return numbers(space + k.keys) + key_head * k.key_count * k.width;
}
uint16_t* values_of(const AmxTask& k, float* space, int64_t key_head) {
  return numbers(space + k.values) + key_head * k.key_count * k.rows;
}

void pack_keys(const AmxTask& k, const Call& call, int64_t key_head) {
  float* const space = space_of(call);
  const Head keys = key_head_of(k.z, k.z.at.k, DType::bf16, call.in[1], key_head);
  const Head values = key_head_of(k.z, k.z.at.v, DType::bf16, call.in[2], key_head);
  k.amx->pack_left({.rows = k.z.s,
                    .width = k.z.k,
                    .from = first_of(keys),
                    .step = keys.row_stride,
                    .to = keys_of(k, space, key_head),
                    .to_step = kTileRows * k.width});
  k.amx->pack_left_transposed({.rows = k.z.s,
                               .width = k.z.k,
                               .from = first_of(values),
                               .step = values.row_stride,
                               .to = values_of(k, space, key_head),
                               .to_step = kTileRows * k.key_count});
}

// One tile: updates the online softmax and the result of `queries` (in tiles) with keys of a head.
void add_keys(const AmxTask& k, float* own, float* space, int64_t key_head, RowRange keys,
              int64_t queries) {
  const int64_t deep = ceil_div(keys.count, kTileDepth);
  k.amx->gemm({.m = ceil_div(keys.count, kTileRows),
               .n = queries,
               .k = k.width / kTileDepth,
               .a = {.first = keys_of(k, space, key_head) + keys.begin * k.width,
                     .step = kTileRows * k.width},
               .b = numbers(own + k.query_at),
               .b_step = kTileRows * k.width,
               .c = own + k.score_at,
               .c_row = kQueryBlock});
  k.amx->softmax({.keys = keys.count,
                  .n = queries * kTileRows,
                  .s = own + k.score_at,
                  .s_row = kQueryBlock,
                  .factor = static_cast<float>(k.z.scale * kLog2e),
                  .max = own + k.max_at,
                  .sum = own + k.sum_at,
                  .result = own + k.result_at,
                  .result_row = kQueryBlock,
                  .width = k.z.k,
                  .p = numbers(own + k.weight_at)});
  k.amx->gemm({.m = k.rows / kTileRows,
               .n = queries,
               .k = deep,
               .a = {.first = values_of(k, space, key_head) + keys.begin * kTileRows,
                     .step = kTileRows * k.key_count},
               .b = numbers(own + k.weight_at),
               .b_step = deep * kTileSize,
               .c = own + k.result_at,
               .c_row = kQueryBlock,
               .accumulate = true});
}

void begin_amx_queries(const AmxTask& k, const Head& head, RowRange rows, float* own) {
  k.amx->pack_right({.rows = rows.count,
                     .width = k.z.k,
                     .from = first_of(head) + rows.begin * head.row_stride,
                     .step = head.row_stride,
                     .to = numbers(own + k.query_at),
                     .to_step = kTileRows * k.width});
  k.begin(own);
}

// Query block `i` of all heads.
void attend_amx(const AmxTask& k, const Call& call, int64_t i) {
  const AttentionSizes& z = k.z;
  float* const space = space_of(call);
  float* const own = k.own_tiles(space);
  const int64_t head = k.head_of(i);
  const RowRange rows = k.rows_of(i);
  begin_amx_queries(k, head_of(z, z.at.q, DType::bf16, call.in[0], head), rows, own);
  k.amx->begin();
  for (int64_t j = 0; j < z.s; j += kAmxKeyBlock)
    add_keys(k, own, space, head / z.group(), {j, std::min(kAmxKeyBlock, z.s - j)},
             ceil_div(rows.count, kTileRows));
  k.amx->end();
  k.end(call, DType::bf16, i, own);
}

}  // namespace

bool amx_attention_supports(const Signature& s, const Device&) {
  if (s.in[0].dtype != DType::bf16 || !ebb::cpu::amx_kernels()) return false;
  const AttentionSizes z = attention_sizes(s);
  return z.plain() && z.k % 2 == 0 && z.scale > 0;
}

Program prepare_amx_attention(const Signature& s, const Tune&, Device&) {
  const AmxTask k(attention_sizes(s));
  const auto run = [k](const Call& given) {
    const Call call = unpacked(k.z, DType::bf16, given);
#pragma omp parallel num_threads(k.threads)
    {
#pragma omp for
      for (int64_t i = 0; i < k.z.n * k.z.key_heads; ++i) pack_keys(k, call, i);
#pragma omp for schedule(dynamic)
      for (int64_t i = 0; i < k.blocks(); ++i) attend_amx(k, call, i);
    }
  };
  return {.workspace = k.workspace, .run = run};
}

}  // namespace ebb::ops::cpu
