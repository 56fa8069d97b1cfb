// matmul on CUDA, for b that is stored [..., K, N].
#include "ops/prim/matmul/cuda_gemm.cuh"

namespace ebb::ops::cuda {

using ebb::cuda::K;

Program matmul_nn(const Signature& s, const ebb::cuda::GemmPlan& plan,
                  ebb::cuda::CudaDevice& device) {
  return s.as<Matmul>().trans_a ? matmul_program<K::outer, K::outer>(s, plan, device)
                                : matmul_program<K::inner, K::outer>(s, plan, device);
}

}  // namespace ebb::ops::cuda
