// conv2d on sm_90a: images read as rows of a matrix.
#include "backend/cuda/gemm/sm90/mainloop.cuh"
#include "ops/prim/conv2d/cuda_sm90.h"

namespace ebb::ops::cuda {

using ebb::cuda::gemm::Family, ebb::cuda::gemm::Form, ebb::cuda::gemm::Tile,
    ebb::cuda::gemm::PingPong;

ebb::cuda::gemm::Kernels conv2d_sm90_kernels(DType type) {
  if (type == DType::f16)
    return Family<__half, Form::fprop, Tile<128, 256>, Tile<128, 160>, Tile<128, 128, 2>,
                  Tile<128, 64, 2>, Tile<64, 128, 2>, Tile<64, 64, 2>>::kernels();
  return Family<__nv_bfloat16, Form::fprop, Tile<128, 256>, Tile<256, 128>, PingPong<192, 128>,
                Tile<128, 192>, PingPong<128, 192>, Tile<128, 160>, Tile<256, 64>,
                Tile<128, 128, 2>, PingPong<128, 128>, Tile<128, 64, 2>, Tile<64, 128, 2>,
                Tile<64, 64, 2>, Tile<256, 160>>::kernels();
}

}  // namespace ebb::ops::cuda
