// The tensor-core kernels of attention_grad for bf16.
#include "ops/prim/attention_grad/cuda/kernels.cuh"

namespace ebb::ops::cuda {

GradKernels grad_kernels_bf16(int64_t width, int64_t t, int64_t s) {
  return grad_kernels<__nv_bfloat16>(width, t, s);
}
GradKernels masked_grad_kernels_bf16(int64_t width) {
  return masked_grad_kernels<__nv_bfloat16>(width);
}

}  // namespace ebb::ops::cuda
