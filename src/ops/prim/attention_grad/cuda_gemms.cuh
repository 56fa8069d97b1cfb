// attention_grad of wide heads by products of matrices: the weights of a piece of the queries lie
// in memory, and the five products are those of op matmul.
#pragma once

#include "backend/cuda/device.h"
#include "ir/kernel.h"
#include "ops/prim/attention_grad/cuda_grad.cuh"

namespace ebb::ops::cuda {

// Of one use with one head a sample: bytes of the workspace behind shift and delta, and what
// computes dq, dk and dv when those are there. 16-bit elements; all addresses are multiples of 16.
struct GradProducts {
  int64_t workspace = 0;
  std::function<void(const GradParams&, void* workspace)> run;
};
GradProducts grad_products(const HeadSizes& z, DType dtype, Device& device);

}  // namespace ebb::ops::cuda
