// conv2d_dw on sm_90a: sums over pixels of dy times the images under each tap.
#include "backend/cuda/gemm/sm90/mainloop.cuh"
#include "ops/prim/conv2d_dw/cuda_sm90.h"

namespace ebb::ops::cuda {

using ebb::cuda::gemm::Family, ebb::cuda::gemm::Form, ebb::cuda::gemm::Tile,
    ebb::cuda::gemm::PingPong;

ebb::cuda::gemm::Kernels conv2d_dw_sm90_kernels(DType type) {
  if (type == DType::f16)
    return Family<__half, Form::wgrad, Tile<256, 128>, Tile<128, 128, 2>,
                  Tile<64, 128, 2>>::kernels();
  return Family<__nv_bfloat16, Form::wgrad, Tile<128, 256>, Tile<256, 128>, Tile<192, 192>,
                Tile<128, 192>, PingPong<192, 128>, Tile<128, 128, 2>, Tile<64, 256>,
                Tile<64, 128, 2>>::kernels();
}

}  // namespace ebb::ops::cuda
