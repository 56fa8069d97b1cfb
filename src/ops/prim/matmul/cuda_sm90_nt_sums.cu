// matmul on sm_90a with further products: a [M, K], b [N, K], plain and of Form::gated.
#include "backend/cuda/gemm/sm90/mainloop.cuh"
#include "ops/prim/matmul/cuda_sm90.h"

namespace ebb::ops::cuda {

using ebb::cuda::gemm::Family, ebb::cuda::gemm::Form, ebb::cuda::gemm::Tile,
    ebb::cuda::gemm::PingPong, ebb::cuda::gemm::Summed;

ebb::cuda::gemm::Kernels matmul_sm90_nt_sums(DType type) {
  if (type == DType::f16)
    return Family<__half, Form::nt, Summed<Tile<128, 256>>, Summed<Tile<128, 128, 2>>,
                  Summed<Tile<64, 64, 2>>>::kernels();
  return Family<__nv_bfloat16, Form::nt, Summed<Tile<128, 256>>, Summed<Tile<256, 128>>,
                Summed<PingPong<128, 192>>, Summed<Tile<128, 128, 2>>, Summed<PingPong<128, 128>>,
                Summed<Tile<64, 128, 2>>, Summed<Tile<64, 64, 2>>>::kernels();
}

ebb::cuda::gemm::Kernels matmul_sm90_gated_sums(DType type) {
  if (type == DType::f16) return Family<__half, Form::gated, Summed<PingPong<128, 128>>>::kernels();
  return Family<__nv_bfloat16, Form::gated, Summed<PingPong<128, 192>>,
                Summed<PingPong<128, 128>>>::kernels();
}

}  // namespace ebb::ops::cuda
