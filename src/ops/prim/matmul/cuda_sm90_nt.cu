// matmul on sm_90a: a [M, K], b [N, K].
#include "backend/cuda/gemm_sm90.cuh"
#include "ops/prim/matmul/cuda_sm90.h"

namespace ebb::ops::cuda {

using ebb::cuda::gemm::Family, ebb::cuda::gemm::Form, ebb::cuda::gemm::Tile,
    ebb::cuda::gemm::TwoTeams;

ebb::cuda::gemm::Kernels matmul_sm90_rows(DType type) {
  if (type == DType::f16)
    return Family<__half, Form::nt, Tile<128, 256>, Tile<128, 160>, Tile<128, 128, 2>,
                  Tile<64, 128, 2>, Tile<64, 64, 2>>::kernels();
  return Family<__nv_bfloat16, Form::nt, Tile<128, 256>, Tile<256, 128>, Tile<128, 192>,
                TwoTeams<128, 192>, Tile<128, 160>, Tile<128, 128, 2>, TwoTeams<128, 128>,
                Tile<128, 64, 2>, Tile<64, 128, 2>, Tile<64, 64, 2>, Tile<64, 192, 2>,
                Tile<192, 192>, TwoTeams<128, 96>>::kernels();
}

}  // namespace ebb::ops::cuda
