// The wgmma kernels of attention for f16 that take a mask.
#include "ops/prim/attention/cuda/sm90/table.cuh"

namespace ebb::ops::cuda {

std::vector<Sm90Kernel> sm90_masked_kernels_f16(int64_t width) {
  return sm90_masked_kernels<__half>(width);
}

}  // namespace ebb::ops::cuda
