// attention in tiles of 64 queries by 128 keys, as in cpu.cpp, with both products on matrix tiles
// (AMX): scores [keys,queries] = k q^T, the result [K,queries] = v^T p. What the softmax makes of
// the scores is rounded to bf16 in between; all sums are f32.
#include "ops/prim/attention/cpu_amx.h"

#include <omp.h>

#include <cmath>
#include <limits>

#include "backend/cpu/simd/amx.h"
#include "ops/prim/attention/cpu_head.h"

namespace ebb::ops::cpu {
namespace {

using ebb::cpu::AmxKernels;
using ebb::cpu::kTileDepth;
using ebb::cpu::kTileRows;
using ebb::cpu::kTileSize;

constexpr int64_t kKeyBlock = 128;
constexpr double kLog2e = 1.4426950408889634;

struct Task {
  AttentionSizes z;
  const AmxKernels* amx = nullptr;
  int64_t query_blocks = 0;  // of a head
  // In whole tiles: K as a width and as rows, keys of a head.
  int64_t width = 0, rows = 0, key_count = 0;
  int threads = 1;
  // Workspace offsets in floats: keys [keys,K] and values [K,keys] as left operands; a set of tiles
  // per thread.
  int64_t keys = 0, values = 0, own = 0, own_size = 0;
  // In such a set: scores [keys,queries] and what they become; queries [K,queries]; the result
  // [K,queries] and its rows.
  int64_t score_at = 0, weight_at = 0, query_at = 0, result_at = 0, rows_at = 0, max_at = 0,
          sum_at = 0;
  int64_t workspace = 0;
};

Task plan(const Signature& s) {
  const AttentionSizes z = attention_sizes(s);
  Task k{.z = z, .amx = ebb::cpu::amx_kernels()};
  k.query_blocks = ceil_div(z.t, kQueryBlock);
  k.width = rounded_up(z.k, kTileDepth);
  k.rows = rounded_up(z.k, kTileRows);
  k.key_count = rounded_up(z.s, kTileDepth);
  k.threads = omp_get_max_threads();
  Carver own;
  k.score_at = own.take(kQueryBlock * kKeyBlock);
  k.weight_at = own.take(kQueryBlock * kKeyBlock / 2);
  k.query_at = own.take(kQueryBlock * k.width / 2);
  k.result_at = own.take(kQueryBlock * k.rows);
  k.rows_at = own.take(kQueryBlock * z.k);
  k.max_at = own.take(kQueryBlock);
  k.sum_at = own.take(kQueryBlock);
  k.own_size = own.bytes() / 4;
  Carver all;
  k.keys = all.take(z.n * z.key_heads * k.key_count * k.width / 2);
  k.values = all.take(z.n * z.key_heads * k.key_count * k.rows / 2);
  k.own = all.take(k.own_size * k.threads);
  k.workspace = all.bytes() + 64;  // to begin on a cache line
  return k;
}

float* space_of(const Call& call) {
  const auto at = reinterpret_cast<uintptr_t>(call.workspace);
  return reinterpret_cast<float*>(rounded_up(static_cast<int64_t>(at), 64));
}

uint16_t* numbers(float* at) { return reinterpret_cast<uint16_t*>(at); }

const uint16_t* first_of(const Head& h) { return static_cast<const uint16_t*>(h.first); }

uint16_t* keys_of(const Task& k, float* space, int64_t key_head) {
  return numbers(space + k.keys) + key_head * k.key_count * k.width;
}
uint16_t* values_of(const Task& k, float* space, int64_t key_head) {
  return numbers(space + k.values) + key_head * k.key_count * k.rows;
}

void pack(const Task& k, const Call& call, int64_t key_head) {
  float* const space = space_of(call);
  const Head keys = key_head_of(k.z, DType::bf16, call.in[1], key_head);
  const Head values = key_head_of(k.z, DType::bf16, call.in[2], key_head);
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
void add_keys(const Task& k, float* own, float* space, int64_t key_head, RowRange keys,
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

void begin_queries(const Task& k, const Head& head, RowRange rows, float* own) {
  k.amx->pack_right({.rows = rows.count,
                     .width = k.z.k,
                     .from = first_of(head) + rows.begin * head.row_stride,
                     .step = head.row_stride,
                     .to = numbers(own + k.query_at),
                     .to_step = kTileRows * k.width});
  std::fill_n(own + k.max_at, kQueryBlock, -std::numeric_limits<float>::infinity());
  std::fill_n(own + k.sum_at, kQueryBlock, 0.0f);
  std::fill_n(own + k.result_at, kQueryBlock * k.rows, 0.0f);
}

// Writes `rows` of a head's output and their lse.
void end_queries(const Task& k, const Head& head, RowRange rows, float* own, float* lse) {
  ebb::cpu::tile_kernels().transpose({.rows = k.z.k,
                                      .columns = rows.count,
                                      .from = own + k.result_at,
                                      .from_row = kQueryBlock,
                                      .to = own + k.rows_at,
                                      .to_row = k.z.k});
  const float *const max = own + k.max_at, *const sum = own + k.sum_at;
  for (int64_t r = 0; r < rows.count; ++r) {
    write_rows(head, {rows.begin + r, 1}, 1 / sum[r], own + k.rows_at + r * k.z.k, k.z.k);
    lse[r] = static_cast<float>((max[r] + std::log2(sum[r])) / kLog2e);
  }
}

// Query block `i` of all heads.
void attend(const Task& k, const Call& call, int64_t i) {
  const AttentionSizes& z = k.z;
  float* const space = space_of(call);
  float* const own = space + k.own + omp_get_thread_num() * k.own_size;
  const int64_t head = i / k.query_blocks, begin = i % k.query_blocks * kQueryBlock;
  const RowRange rows{begin, std::min(kQueryBlock, z.t - begin)};
  begin_queries(k, head_of(z, DType::bf16, call.in[0], head, z.t), rows, own);
  k.amx->begin();
  for (int64_t j = 0; j < z.s; j += kKeyBlock)
    add_keys(k, own, space, head / z.group(), {j, std::min(kKeyBlock, z.s - j)},
             ceil_div(rows.count, kTileRows));
  k.amx->end();
  end_queries(k, out_head_of(z, DType::bf16, call.out[0], head), rows, own,
              static_cast<float*>(call.out[1]) + head * z.t + begin);
}

}  // namespace

bool amx_attention_supports(const Signature& s, const Device&) {
  if (s.in[0].dtype != DType::bf16 || !ebb::cpu::amx_kernels()) return false;
  const AttentionSizes z = attention_sizes(s);
  return z.plain() && z.k % 2 == 0 && z.scale > 0;
}

Program prepare_amx_attention(const Signature& s, const Tune&, Device&) {
  const Task k = plan(s);
  const auto run = [k](const Call& given) {
    const Call call = unpacked(k.z, DType::bf16, given);
#pragma omp parallel num_threads(k.threads)
    {
#pragma omp for
      for (int64_t i = 0; i < k.z.n * k.z.key_heads; ++i) pack(k, call, i);
#pragma omp for schedule(dynamic)
      for (int64_t i = 0; i < k.z.n * k.z.a * k.query_blocks; ++i) attend(k, call, i);
    }
  };
  return {.workspace = k.workspace, .run = run};
}

}  // namespace ebb::ops::cpu
