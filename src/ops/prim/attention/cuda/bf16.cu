// The tensor-core kernels of attention for bf16.
#include "ops/prim/attention/cuda/kernels.cuh"

namespace ebb::ops::cuda {

ForwardKernels forward_kernels_bf16(int64_t width, bool masked) {
  return masked ? masked_kernels<__nv_bfloat16>(width) : forward_kernels<__nv_bfloat16>(width);
}

}  // namespace ebb::ops::cuda
