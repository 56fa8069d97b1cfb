// attention_grad of wide heads by GEMMs: the scores of a chunk of queries are materialised, and the
// five GEMMs are kernels of op matmul.
#pragma once

#include "backend/cuda/device/device.h"
#include "ir/kernel.h"
#include "ops/prim/attention_grad/cuda/blocks.cuh"

namespace ebb::ops::cuda {

// One head per sample, 16-bit elements, all addresses multiples of 16. `workspace`: bytes behind
// lse_log2 and delta. `run` computes dq, dk and dv after those two.
struct GradGemms {
  int64_t workspace = 0;
  std::function<void(const GradParams&, void* workspace)> run;
};
GradGemms grad_gemms(const HeadSizes& z, DType dtype, Device& device);

}  // namespace ebb::ops::cuda
