// matmul on sm_90a: a [K, M], b [N, K].
#include "backend/cuda/gemm/sm90/mainloop.cuh"
#include "ops/prim/matmul/cuda_sm90.h"

namespace ebb::ops::cuda {

using ebb::cuda::gemm::Family, ebb::cuda::gemm::Form, ebb::cuda::gemm::Tile;

ebb::cuda::gemm::Kernels matmul_sm90_tt(DType type) {
  if (type == DType::f16) return Family<__half, Form::tt, Tile<128, 128, 2>>::kernels();
  return Family<__nv_bfloat16, Form::tt, Tile<128, 128, 2>>::kernels();
}

}  // namespace ebb::ops::cuda
