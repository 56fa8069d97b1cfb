// The kernels of the long attention_grad by dtype and width.
#pragma once

#include "ops/prim/attention_grad/cuda_sm90_schedule.cuh"

namespace ebb::ops::cuda {

struct LongKernel {
  void (*rows)(LongParams);  // comes first: shift, delta and turns
  void (*run)(LongParams);
  void (*sum)(LongParams);  // if there are ranges of queries
  unsigned threads;
  int64_t bytes;      // of shared memory
  int keys, queries;  // of a block
  // Floats of LongParams::sums for a block of queries; pieces of LongParams::parts for a block of
  // keys and a range of queries, and their floats.
  int64_t block_sums, pieces, part_piece;
};

// For the narrowest width that holds `width`, a multiple of 8 up to 128.
LongKernel long_kernel_bf16(int width);
LongKernel long_kernel_f16(int width);

}  // namespace ebb::ops::cuda
