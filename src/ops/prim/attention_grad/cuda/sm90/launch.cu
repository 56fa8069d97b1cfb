// attention_grad of long sequences on sm_90a: work partitioning and launches.
#include "ops/prim/attention_grad/cuda/sm90/launch.cuh"

#include <algorithm>

#include "backend/cuda/launch.h"
#include "backend/cuda/generated/work_split.h"
#include "ops/prim/attention/cuda/tma_boxes.cuh"
#include "ops/prim/attention_grad/cuda/sm90/table.cuh"

namespace ebb::ops::cuda {
namespace {

constexpr int64_t kRows = 128;  // lse_log2 and delta are padded to a multiple of this

LongKernel kernel_of(DType dtype, int width) {
  return dtype == DType::bf16 ? long_kernel_bf16(width) : long_kernel_f16(width);
}

// Work partitioning. A tile is a block of keys of a head; where there are too few of them to fill
// the device, the queries are split as well.
struct Schedule {
  int key_blocks = 0, query_blocks = 0, query_splits = 1;
  int64_t tiles = 0, dkv_tiles = 0;  // dkv_tiles: 64 rows of dk or dv, per query split
  // Workspace.
  int64_t stats_bytes = 0, semaphore_bytes = 0, dq_accum_bytes = 0, dkv_partial_bytes = 0;
};

Schedule schedule(const HeadSizes& z, const LongKernel& k, const CudaDevice& device) {
  Schedule c;
  c.key_blocks = static_cast<int>(ceil_div(z.s, k.keys));
  c.query_blocks = static_cast<int>(ceil_div(z.t, k.queries));
  const int64_t key_tiles = z.heads * c.key_blocks;
  if (key_tiles > 0 && c.query_blocks > 0)
    c.query_splits =
        static_cast<int>(std::clamp<int64_t>(device.sm_count() / key_tiles, 1, c.query_blocks));
  c.tiles = key_tiles * c.query_splits;
  c.dkv_tiles = key_tiles * k.dkv_tiles;
  c.stats_bytes = z.heads * ceil_div(z.t, kRows) * kRows * 8;
  if (c.key_blocks > 1) {
    c.semaphore_bytes = ceil_div(z.heads * c.query_blocks * 4, 128) * 128;
    c.dq_accum_bytes = z.heads * c.query_blocks * k.dq_block_floats * 4;
  }
  if (c.query_splits > 1)
    c.dkv_partial_bytes = c.query_splits * c.dkv_tiles * k.dkv_tile_floats * 4;
  return c;
}

}  // namespace

int64_t long_workspace(DType dtype, const HeadSizes& z, const CudaDevice& device) {
  const Schedule c = schedule(z, kernel_of(dtype, z.width), device);
  return c.stats_bytes + c.semaphore_bytes + c.dq_accum_bytes + c.dkv_partial_bytes;
}

void run_long(DType dtype, GradParams p, void* workspace, CudaDevice& device) {
  const HeadSizes& z = p.z;
  const LongKernel kernel = kernel_of(dtype, z.width);
  const Schedule c = schedule(z, kernel, device);
  auto* at = static_cast<char*>(workspace);
  p.pitch = ceil_div(z.t, kRows) * kRows;
  p.lse_log2 = reinterpret_cast<float*>(at);
  p.delta = p.lse_log2 + z.heads * p.pitch;
  LongParams l{.g = p};
  l.dq_semaphore = reinterpret_cast<unsigned*>(at += c.stats_bytes);
  l.dq_accum = reinterpret_cast<float*>(at += c.semaphore_bytes);
  l.dkv_partial = reinterpret_cast<float*>(at + c.dq_accum_bytes);
  l.key_blocks = c.key_blocks, l.query_blocks = c.query_blocks, l.query_splits = c.query_splits;
  l.tiles = static_cast<int>(c.tiles);
  l.semaphore_count = c.key_blocks > 1 ? static_cast<int>(z.heads) * c.query_blocks : 0;
  l.q = map_of(z, dtype, {p.q, z.t, z.row_stride, kernel.queries});
  l.k = map_of(z, dtype, {p.k, z.s, z.row_stride, kernel.keys});
  l.v = map_of(z, dtype, {p.v, z.s, z.row_stride, kernel.keys});
  l.dout = map_of(z, dtype, {p.dout, z.t, z.out_row_stride, kernel.queries});
  launch("attention_grad_long_preprocess", kernel.preprocess,
         {.grid = blocks_for(z.heads / z.a * p.pitch, kRowTokens), .block = kRowThreads}, l,
         device);
  const auto grid = static_cast<unsigned>(std::min<int64_t>(c.tiles, device.sm_count()));
  launch("attention_grad_long", kernel.run,
         {.grid = grid, .block = kernel.threads, .shared = kernel.bytes}, l, device);
  if (c.query_splits > 1)
    launch("attention_grad_long_combine", kernel.combine,
           {.grid = static_cast<unsigned>(c.dkv_tiles), .block = 128}, l, device);
}

}  // namespace ebb::ops::cuda
