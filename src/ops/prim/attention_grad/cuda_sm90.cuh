// attention_grad of long heads on sm_90a, in one pass.
#pragma once

#include "backend/cuda/device.h"
#include "ops/prim/attention_grad/cuda_grad.cuh"

namespace ebb::ops::cuda {

// Bytes of workspace.
int64_t long_workspace(DType dtype, const HeadSizes& z, const ebb::cuda::CudaDevice& device);

// dq, dk and dv of 16-bit heads whose width is a multiple of 8 up to 128. p.q, k, v, o, lse, dout,
// dlse, the gradients and dtypes are set; the tensors are aligned to 16 bytes.
void run_long(DType dtype, GradParams p, void* workspace, ebb::cuda::CudaDevice& device);

}  // namespace ebb::ops::cuda
