// attention_grad on sm_90a: of short heads, each by a thread block, and of long heads in one
// pass.
#pragma once

#include "backend/cuda/device.h"
#include "ops/prim/attention_grad/cuda_grad.cuh"

namespace ebb::ops::cuda {

// Whether a thread block has room for a head whose width is a multiple of 8.
bool serves_head(const HeadSizes& z);

// dq, dk and dv of 16-bit heads that it has room for. p.q, k, v, o, lse, dout, dlse, the gradients
// and dtypes are set; the tensors are aligned to 16 bytes.
void run_head(DType dtype, const GradParams& p, ebb::cuda::CudaDevice& device);

// Bytes of workspace of run_long.
int64_t long_workspace(DType dtype, const HeadSizes& z, const ebb::cuda::CudaDevice& device);

// The same of heads whose width is a multiple of 8 up to 128.
void run_long(DType dtype, GradParams p, void* workspace, ebb::cuda::CudaDevice& device);

}  // namespace ebb::ops::cuda
