// matmul on sm_90a: a [M, K], b [N, K], one half of the result's columns times an activation of the
// other.
#include "backend/cuda/gemm/sm90/mainloop.cuh"
#include "ops/prim/matmul/cuda_sm90.h"

namespace ebb::ops::cuda {

using ebb::cuda::gemm::Family, ebb::cuda::gemm::Form, ebb::cuda::gemm::PingPong;

ebb::cuda::gemm::Kernels matmul_sm90_gated(DType type) {
  if (type == DType::f16)
    return Family<__half, Form::gated, PingPong<128, 192>, PingPong<128, 128>>::kernels();
  return Family<__nv_bfloat16, Form::gated, PingPong<128, 192>, PingPong<128, 128>>::kernels();
}

}  // namespace ebb::ops::cuda
