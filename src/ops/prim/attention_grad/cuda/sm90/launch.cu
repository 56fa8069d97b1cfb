// attention_grad of long sequences on sm_90a: work partitioning and launches.
#include "ops/prim/attention_grad/cuda/sm90/launch.cuh"

#include "backend/cuda/device/launch.h"
#include "base/round_up.h"
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

// What a launch needs, in bytes of workspace.
struct Schedule {
  LongSizes sizes;
  int64_t dkv_tiles = 0;  // 64 rows of dk or dv, per query split
  int64_t stats = 0, semaphores = 0, turns = 0, dq_accum = 0, dkv_partial = 0;
};

LongSizes sizes_of(const LongProblem& l, const LongKernel& k, const CudaDevice& device) {
  const HeadSizes& z = l.z;
  LongSizes n{.heads = static_cast<int>(z.heads / z.group),
              .key_blocks = static_cast<int>(ceil_div(z.s, k.keys)),
              .head_blocks = static_cast<int>(ceil_div(z.t, k.queries))};
  n.query_blocks = z.group * n.head_blocks;
  n.keys = k.keys, n.queries = k.queries, n.diagonal = z.s - z.t;
  return l.causal ? divided_causal(n, device.sm_count()) : divided_plain(n, device.sm_count());
}

Schedule schedule(const LongProblem& l, const LongKernel& k, const CudaDevice& device) {
  const HeadSizes& z = l.z;
  const LongSizes n = sizes_of(l, k, device);
  const auto lines = [](int64_t bytes) { return ceil_div(bytes, 128) * 128; };
  const int64_t query_blocks = int64_t{n.heads} * n.query_blocks;
  Schedule c{.sizes = n, .dkv_tiles = int64_t{n.heads} * n.key_blocks * k.dkv_tiles};
  c.stats = z.heads * ceil_div(z.t, kRows) * kRows * 8;
  if (n.key_blocks > 1) {
    c.semaphores = lines(query_blocks * 4);
    c.dq_accum = query_blocks * k.dq_block_floats * 4;
  }
  if (l.causal) c.turns = lines(int64_t{n.key_blocks} * n.query_blocks / n.query_splits * 2);
  if (n.query_splits > 1) c.dkv_partial = n.query_splits * c.dkv_tiles * k.dkv_tile_floats * 4;
  return c;
}

void run(const LongKernel& kernel, const Schedule& c, LongParams l, DType dtype,
         CudaDevice& device) {
  const HeadSizes& z = l.g.z;
  l.q = map_of(z, dtype, {l.g.q, z.t, z.q, kernel.queries});
  l.k = map_of(z, dtype, key_boxes(z, z.k, l.g.k, kernel.keys));
  l.v = map_of(z, dtype, key_boxes(z, z.v, l.g.v, kernel.keys));
  l.dout = map_of(z, dtype, {l.g.dout, z.t, l.g.dout_lies, kernel.queries});
  launch("attention_grad_long_preprocess", kernel.preprocess,
         {.grid = blocks_for(z.heads / z.a * l.g.pitch, kRowTokens), .block = kRowThreads}, l,
         device);
  launch("attention_grad_long", kernel.run,
         {.grid = static_cast<unsigned>(l.sizes.grid),
          .block = kernel.threads,
          .shared = kernel.bytes},
         l, device);
  if (l.sizes.query_splits > 1)
    launch("attention_grad_long_combine", kernel.combine,
           {.grid = static_cast<unsigned>(c.dkv_tiles), .block = 128}, l, device);
}

}  // namespace

bool serves_long(DType dtype, const LongProblem& l, const CudaDevice& device) {
  const HeadSizes& z = l.z;
  if (!l.causal) return true;
  // A wave holds whole heads. Queries that see no key have no tile that would write their dq.
  const int64_t blocks = ceil_div(z.s, kernel_of(dtype, l).keys);
  return z.t <= z.s && ceil_div(blocks, 2) <= device.sm_count();
}

LongBlock long_block(DType dtype, const LongProblem& l, const CudaDevice& device) {
  const LongKernel k = kernel_of(dtype, l);
  return {k.queries, k.keys, l.causal ? l.z.s : sizes_of(l, k, device).key_chunk * k.keys};
}

LongProgram long_program(DType dtype, const LongProblem& l, CudaDevice& device) {
  const LongKernel kernel = kernel_of(dtype, l);
  const Schedule c = schedule(l, kernel, device);
  return {.workspace = c.stats + c.semaphores + c.turns + c.dq_accum + c.dkv_partial,
          .run = [=, causal = l.causal, &device](GradParams p, void* workspace) {
            auto* at = static_cast<char*>(workspace);
            p.pitch = ceil_div(p.z.t, kRows) * kRows;
            p.lse_log2 = reinterpret_cast<float*>(at);
            p.delta = p.lse_log2 + p.z.heads * p.pitch;
            LongParams params{.g = p, .sizes = c.sizes};
            params.dq_semaphore = reinterpret_cast<unsigned*>(at += c.stats);
            at += c.semaphores;
            params.turns = causal ? reinterpret_cast<uint16_t*>(at) : nullptr;
            params.dq_accum = reinterpret_cast<float*>(at += c.turns);
            params.dkv_partial = reinterpret_cast<float*>(at + c.dq_accum);
            if (c.sizes.key_blocks > 1)
              params.semaphore_count = c.sizes.heads * c.sizes.query_blocks;
            run(kernel, c, params, dtype, device);
          }};
}

}  // namespace ebb::ops::cuda
