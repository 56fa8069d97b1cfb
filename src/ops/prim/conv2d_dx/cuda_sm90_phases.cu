// conv2d_dx with a stride on sm_90a, as for transposed convolutions: phase by phase of the pixels.
#include "backend/cuda/gemm/sm90/mainloop.cuh"
#include "ops/prim/conv2d_dx/cuda_sm90.h"

namespace ebb::ops::cuda {

using ebb::cuda::gemm::Family, ebb::cuda::gemm::Form, ebb::cuda::gemm::Tile,
    ebb::cuda::gemm::PingPong;

ebb::cuda::gemm::Kernels conv2d_dx_sm90_phases(DType type) {
  if (type == DType::f16)
    return Family<__half, Form::phases, Tile<128, 256>, Tile<128, 128, 2>,
                  Tile<128, 64, 2>>::kernels();
  return Family<__nv_bfloat16, Form::phases, Tile<128, 256>, PingPong<128, 192>, PingPong<128, 128>,
                Tile<128, 128, 2>, Tile<128, 64, 2>, Tile<64, 64, 2>>::kernels();
}

}  // namespace ebb::ops::cuda
