// The long attention_grad for f16 with a causal mask.
#include "ops/prim/attention_grad/cuda/sm90/kernel.cuh"

namespace ebb::ops::cuda {

LongKernel causal_long_kernel_f16(int width) { return causal_long_kernel<__half>(width); }

}  // namespace ebb::ops::cuda
