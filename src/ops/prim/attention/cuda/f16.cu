// The tensor-core kernels of attention for f16.
#include "ops/prim/attention/cuda/kernels.cuh"

namespace ebb::ops::cuda {

ForwardKernels forward_kernels_f16(int64_t width, bool masked) {
  return masked ? masked_kernels<__half>(width) : forward_kernels<__half>(width);
}

}  // namespace ebb::ops::cuda
