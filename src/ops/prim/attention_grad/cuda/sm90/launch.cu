// attention_grad of long sequences on sm_90a: work partitioning and launches.
#include "ops/prim/attention_grad/cuda/sm90/launch.cuh"

#include <algorithm>

#include "backend/cuda/generated/work_split.h"
#include "backend/cuda/launch.h"
#include "ops/prim/attention/cuda/tma_boxes.cuh"
#include "ops/prim/attention_grad/cuda/sm90/table.cuh"

namespace ebb::ops::cuda {
namespace {

constexpr int64_t kRows = 128;  // lse_log2 and delta are padded to a multiple of this

LongKernel kernel_of(DType dtype, const LongProblem& l) {
  const int width = l.z.width;
  if (l.causal)
    return dtype == DType::bf16 ? causal_long_kernel_bf16(width) : causal_long_kernel_f16(width);
  return dtype == DType::bf16 ? long_kernel_bf16(width) : long_kernel_f16(width);
}

struct Schedule {
  LongSizes sizes;
  int grid = 0;
  int64_t dkv_tiles = 0;  // 64 rows of dk or dv, per query split
  // Workspace.
  int64_t stats_bytes = 0, semaphore_bytes = 0, turns_bytes = 0, dq_accum_bytes = 0,
          dkv_partial_bytes = 0;
  int64_t bytes() const {
    return stats_bytes + semaphore_bytes + turns_bytes + dq_accum_bytes + dkv_partial_bytes;
  }
};

// Where there are too few blocks of keys to fill the device, the queries are split as well.
void divide_plain(Schedule& c, int sm_count) {
  LongSizes& z = c.sizes;
  const int64_t key_tiles = int64_t{z.heads} * z.key_blocks;
  if (key_tiles > 0 && z.query_blocks > 0)
    z.query_splits = static_cast<int>(std::clamp<int64_t>(sm_count / key_tiles, 1, z.query_blocks));
  z.tiles = static_cast<int>(key_tiles * z.query_splits);
  c.grid = std::min(z.tiles, sm_count);
}

// Pairs of tiles, in waves of whole heads; splits are whole query heads. The fewest splits that are
// within a tenth of the fastest.
void divide_causal(Schedule& c, int sm_count) {
  LongSizes& z = c.sizes;
  const int group = z.query_blocks / z.head_blocks, pairs = CausalTile::pairs(z);
  const int most = sm_count / pairs;  // heads in a wave
  const auto time = [&](int splits) {
    return static_cast<double>(ceil_div(z.heads * splits, most)) / splits;
  };
  for (int splits = 2; splits <= group; ++splits)
    if (group % splits == 0 && time(splits) < .9 * time(z.query_splits)) z.query_splits = splits;
  const int units = z.heads * z.query_splits;
  c.grid = pairs * std::min(most, units);
  z.tiles = 2 * static_cast<int>(ceil_div(units, std::min(most, units))) * c.grid;
}

Schedule schedule(const LongProblem& l, const LongKernel& k, const CudaDevice& device) {
  const HeadSizes& z = l.z;
  Schedule c;
  LongSizes& n = c.sizes;
  n.heads = static_cast<int>(z.heads / z.group);
  n.key_blocks = static_cast<int>(ceil_div(z.s, k.keys));
  n.head_blocks = static_cast<int>(ceil_div(z.t, k.queries));
  n.query_blocks = z.group * n.head_blocks;
  n.keys = k.keys, n.queries = k.queries, n.diagonal = z.s - z.t;
  l.causal ? divide_causal(c, device.sm_count()) : divide_plain(c, device.sm_count());
  const auto lines = [](int64_t bytes) { return ceil_div(bytes, 128) * 128; };
  const int64_t query_blocks = int64_t{n.heads} * n.query_blocks;
  c.dkv_tiles = int64_t{n.heads} * n.key_blocks * k.dkv_tiles;
  c.stats_bytes = z.heads * ceil_div(z.t, kRows) * kRows * 8;
  if (n.key_blocks > 1) {
    c.semaphore_bytes = lines(query_blocks * 4);
    c.dq_accum_bytes = query_blocks * k.dq_block_floats * 4;
  }
  if (l.causal) c.turns_bytes = lines(int64_t{n.key_blocks} * n.query_blocks / n.query_splits * 2);
  if (n.query_splits > 1)
    c.dkv_partial_bytes = n.query_splits * c.dkv_tiles * k.dkv_tile_floats * 4;
  return c;
}

}  // namespace

bool serves_long(const LongProblem& l, const CudaDevice& device) {
  const HeadSizes& z = l.z;
  // With few queries, the blocks of keys would queue up at the dq semaphores.
  if (z.s > 16 * int64_t{z.t}) return false;
  if (!l.causal) return true;
  // A wave holds whole heads. Queries that see no key have no tile that would write their dq.
  const int keys = kernel_of(DType::bf16, l).keys;
  return z.t <= z.s && ceil_div(ceil_div(z.s, keys), 2) <= device.sm_count();
}

int64_t long_workspace(DType dtype, const LongProblem& l, const CudaDevice& device) {
  return schedule(l, kernel_of(dtype, l), device).bytes();
}

void run_long(DType dtype, GradParams p, bool causal, void* workspace, CudaDevice& device) {
  const HeadSizes& z = p.z;
  const LongKernel kernel = kernel_of(dtype, {z, causal});
  const Schedule c = schedule({z, causal}, kernel, device);
  auto* at = static_cast<char*>(workspace);
  p.pitch = ceil_div(z.t, kRows) * kRows;
  p.lse_log2 = reinterpret_cast<float*>(at);
  p.delta = p.lse_log2 + z.heads * p.pitch;
  LongParams l{.g = p, .sizes = c.sizes};
  l.dq_semaphore = reinterpret_cast<unsigned*>(at += c.stats_bytes);
  l.turns = causal ? reinterpret_cast<uint16_t*>(at + c.semaphore_bytes) : nullptr;
  l.dq_accum = reinterpret_cast<float*>(at += c.semaphore_bytes + c.turns_bytes);
  l.dkv_partial = reinterpret_cast<float*>(at + c.dq_accum_bytes);
  if (c.sizes.key_blocks > 1) l.semaphore_count = c.sizes.heads * c.sizes.query_blocks;
  l.q = map_of(z, dtype, {p.q, z.t, z.row_stride, kernel.queries});
  l.k = map_of(z, dtype, key_boxes(z, p.k, kernel.keys));
  l.v = map_of(z, dtype, key_boxes(z, p.v, kernel.keys));
  l.dout = map_of(z, dtype, {p.dout, z.t, z.out_row_stride, kernel.queries});
  launch("attention_grad_long_preprocess", kernel.preprocess,
         {.grid = blocks_for(z.heads / z.a * p.pitch, kRowTokens), .block = kRowThreads}, l,
         device);
  launch("attention_grad_long", kernel.run,
         {.grid = static_cast<unsigned>(c.grid), .block = kernel.threads, .shared = kernel.bytes},
         l, device);
  if (c.sizes.query_splits > 1)
    launch("attention_grad_long_combine", kernel.combine,
           {.grid = static_cast<unsigned>(c.dkv_tiles), .block = 128}, l, device);
}

}  // namespace ebb::ops::cuda
