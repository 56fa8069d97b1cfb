// matmul on sm_90a: a [M, K], b [N, K].
#include "backend/cuda/gemm/sm90/mainloop.cuh"
#include "ops/prim/matmul/cuda_sm90.h"

namespace ebb::ops::cuda {

using ebb::cuda::gemm::Family, ebb::cuda::gemm::Form, ebb::cuda::gemm::Tile,
    ebb::cuda::gemm::PingPong;

ebb::cuda::gemm::Kernels matmul_sm90_nt(DType type) {
  if (type == DType::f16)
    return Family<__half, Form::nt, Tile<128, 256>, Tile<128, 160>, Tile<128, 128, 2>,
                  Tile<64, 128, 2>, Tile<64, 64, 2>>::kernels();
  return Family<__nv_bfloat16, Form::nt, Tile<128, 256>, Tile<256, 128>, Tile<128, 192>,
                PingPong<128, 192>, Tile<128, 160>, Tile<128, 128, 2>, PingPong<128, 128>,
                Tile<128, 64, 2>, Tile<64, 128, 2>, Tile<64, 64, 2>, Tile<64, 192, 2>,
                Tile<192, 192>, PingPong<128, 96>, PingPong<128, 160>, Tile<256, 160>>::kernels();
}

}  // namespace ebb::ops::cuda
