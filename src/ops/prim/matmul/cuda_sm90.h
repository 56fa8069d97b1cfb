// matmul on sm_90a.
#pragma once

#include <vector>

#include "backend/cuda/gemm/sm90/problem.h"

namespace ebb::ops::cuda {

std::vector<Kernel> matmul_sm90();

// The GEMM of a use of matmul, and the kernels that there are for it.
ebb::cuda::gemm::Problem matmul_sm90_problem(const Signature& s);
ebb::cuda::gemm::Kernels matmul_sm90_kernels(const ebb::cuda::gemm::Problem& p);

// The kernels by how a and b are stored, in files of their own: they compile for long. type: bf16
// or f16.
ebb::cuda::gemm::Kernels matmul_sm90_nt(DType type);     // a [M, K], b [N, K]
ebb::cuda::gemm::Kernels matmul_sm90_nn(DType type);     // a [M, K], b [K, N]
ebb::cuda::gemm::Kernels matmul_sm90_tn(DType type);     // a [K, M], b [K, N]
ebb::cuda::gemm::Kernels matmul_sm90_tt(DType type);     // a [K, M], b [N, K]
ebb::cuda::gemm::Kernels matmul_sm90_gated(DType type);  // as rows, of Form::gated
// The same that take further products.
ebb::cuda::gemm::Kernels matmul_sm90_nt_sums(DType type);
ebb::cuda::gemm::Kernels matmul_sm90_nn_sums(DType type);
ebb::cuda::gemm::Kernels matmul_sm90_gated_sums(DType type);

}  // namespace ebb::ops::cuda
