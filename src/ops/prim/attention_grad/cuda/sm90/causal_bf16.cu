// The long attention_grad for bf16 with a causal mask.
#include "ops/prim/attention_grad/cuda/sm90/kernel.cuh"

namespace ebb::ops::cuda {

LongKernel causal_long_kernel_bf16(int width) { return causal_long_kernel<__nv_bfloat16>(width); }

}  // namespace ebb::ops::cuda
