// The kernels of attention_grad for long sequences, by dtype and width.
#pragma once

#include "ops/prim/attention_grad/cuda/sm90/schedule.cuh"

namespace ebb::ops::cuda {

struct LongKernel {
  void (*preprocess)(LongParams);  // lse_log2, delta, zeroed dq_semaphore
  void (*run)(LongParams);
  void (*combine)(LongParams);  // of query splits
  unsigned threads;
  int64_t bytes;      // of shared memory
  int keys, queries;  // per block
  // Floats of dq_accum per query block; tiles of dkv_partial per key block and query split, and
  // floats per tile.
  int64_t dq_block_floats, dkv_tiles, dkv_tile_floats;
};

// For the narrowest width that holds `width`, a multiple of 8 up to 128.
LongKernel long_kernel_bf16(int width);
LongKernel long_kernel_f16(int width);
// With a causal mask.
LongKernel causal_long_kernel_bf16(int width);
LongKernel causal_long_kernel_f16(int width);

}  // namespace ebb::ops::cuda
