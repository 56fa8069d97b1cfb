// The long attention_grad for f16.
#include "ops/prim/attention_grad/cuda/sm90/kernel.cuh"

namespace ebb::ops::cuda {

LongKernel long_kernel_f16(int width) { return long_kernel<__half>(width); }

}  // namespace ebb::ops::cuda
