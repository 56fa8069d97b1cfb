// attention_grad on sm_90a: short sequences, a thread block per head; and long ones.
#pragma once

#include <functional>

#include "backend/cuda/device/device.h"
#include "ops/prim/attention_grad/cuda/blocks.cuh"

namespace ebb::ops::cuda {

// Whether a head whose width is a multiple of 8 fits into the shared memory of a thread block.
bool serves_head(const HeadSizes& z);

// dq, dk and dv of 16-bit heads that fit. p.q, k, v, o, lse, dout, dlse, the gradients and dtypes
// are set; tensors are aligned to 16 bytes.
void run_head(DType dtype, const GradParams& p, ebb::cuda::CudaDevice& device);

// The same for any number of keys: heads up to 128 wide, grouped or not, plain or with a causal
// mask.
struct LongProblem {
  HeadSizes z;
  bool causal;
};
bool serves_long(DType dtype, const LongProblem& l, const ebb::cuda::CudaDevice& device);

// Queries and keys of a pair of blocks, and keys of a head that are under way at once.
struct LongBlock {
  int queries, keys, keys_at_once;
};
LongBlock long_block(DType dtype, const LongProblem& l, const ebb::cuda::CudaDevice& device);

struct LongProgram {
  int64_t workspace = 0;  // bytes
  std::function<void(GradParams, void* workspace)> run;
};
LongProgram long_program(DType dtype, const LongProblem& l, ebb::cuda::CudaDevice& device);

}  // namespace ebb::ops::cuda
