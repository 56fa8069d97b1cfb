// attention_grad of long heads on sm_90a: how the work is cut, and launches.
#include "ops/prim/attention_grad/cuda_sm90.cuh"

#include <algorithm>

#include "backend/cuda/launch.h"
#include "backend/cuda/work_split.h"
#include "ops/prim/attention/cuda_tma_boxes.cuh"
#include "ops/prim/attention_grad/cuda_sm90_table.cuh"

namespace ebb::ops::cuda {
namespace {

constexpr int64_t kRows = 128;  // shift and delta come in blocks of this many queries

LongKernel kernel_of(DType dtype, int width) {
  return dtype == DType::bf16 ? long_kernel_bf16(width) : long_kernel_f16(width);
}

// How the work of one use is cut. A head's keys come in blocks; where they are too few for the
// device, its queries are cut into ranges too.
struct Cut {
  int key_blocks = 0, query_blocks = 0, ranges = 1;
  int64_t tiles = 0, pieces = 0;  // pieces: of dk and dv, of a range of queries
  int64_t rows_bytes = 0, turns_bytes = 0, sums_bytes = 0, parts_bytes = 0;  // of the workspace
};

Cut cut(const HeadSizes& z, const LongKernel& k, const CudaDevice& device) {
  Cut c;
  c.key_blocks = static_cast<int>(ceil_div(z.s, k.keys));
  c.query_blocks = static_cast<int>(ceil_div(z.t, k.queries));
  const int64_t pairs = z.heads * c.key_blocks;
  if (pairs > 0 && c.query_blocks > 0)
    c.ranges = static_cast<int>(std::clamp<int64_t>(device.sm_count() / pairs, 1, c.query_blocks));
  c.tiles = pairs * c.ranges;
  c.pieces = pairs * k.pieces;
  c.rows_bytes = z.heads * ceil_div(z.t, kRows) * kRows * 8;
  if (c.key_blocks > 1) {
    c.turns_bytes = ceil_div(z.heads * c.query_blocks * 4, 128) * 128;
    c.sums_bytes = z.heads * c.query_blocks * k.block_sums * 4;
  }
  if (c.ranges > 1) c.parts_bytes = c.ranges * c.pieces * k.part_piece * 4;
  return c;
}

}  // namespace

int64_t long_workspace(DType dtype, const HeadSizes& z, const CudaDevice& device) {
  const Cut c = cut(z, kernel_of(dtype, z.width), device);
  return c.rows_bytes + c.turns_bytes + c.sums_bytes + c.parts_bytes;
}

void run_long(DType dtype, GradParams p, void* workspace, CudaDevice& device) {
  const HeadSizes& z = p.z;
  const LongKernel kernel = kernel_of(dtype, z.width);
  const Cut c = cut(z, kernel, device);
  auto* at = static_cast<char*>(workspace);
  p.pitch = ceil_div(z.t, kRows) * kRows;
  p.shift = reinterpret_cast<float*>(at);
  p.delta = p.shift + z.heads * p.pitch;
  LongParams l{.g = p};
  l.turns = reinterpret_cast<unsigned*>(at += c.rows_bytes);
  l.sums = reinterpret_cast<float*>(at += c.turns_bytes);
  l.parts = reinterpret_cast<float*>(at + c.sums_bytes);
  l.key_blocks = c.key_blocks, l.query_blocks = c.query_blocks, l.ranges = c.ranges;
  l.tiles = static_cast<int>(c.tiles);
  l.turn_count = c.key_blocks > 1 ? static_cast<int>(z.heads) * c.query_blocks : 0;
  l.q = map_of(z, dtype, {p.q, z.t, z.step, kernel.queries});
  l.k = map_of(z, dtype, {p.k, z.s, z.step, kernel.keys});
  l.v = map_of(z, dtype, {p.v, z.s, z.step, kernel.keys});
  l.dout = map_of(z, dtype, {p.dout, z.t, z.out_step, kernel.queries});
  launch("attention_grad_long_rows", kernel.rows,
         {.grid = blocks_for(z.heads / z.a * p.pitch, kRowTokens), .block = kRowThreads}, l,
         device);
  const auto grid = static_cast<unsigned>(std::min<int64_t>(c.tiles, device.sm_count()));
  launch("attention_grad_long", kernel.run,
         {.grid = grid, .block = kernel.threads, .shared = kernel.bytes}, l, device);
  if (c.ranges > 1)
    launch("attention_grad_long_sum", kernel.sum,
           {.grid = static_cast<unsigned>(c.pieces), .block = 128}, l, device);
}

}  // namespace ebb::ops::cuda
