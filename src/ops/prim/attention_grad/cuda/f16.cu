// The tensor-core kernels of attention_grad for f16.
#include "ops/prim/attention_grad/cuda/kernels.cuh"

namespace ebb::ops::cuda {

GradKernels grad_kernels_f16(int64_t width, int64_t t, int64_t s) {
  return grad_kernels<__half>(width, t, s);
}
GradKernels masked_grad_kernels_f16(int64_t width) { return masked_grad_kernels<__half>(width); }

}  // namespace ebb::ops::cuda
