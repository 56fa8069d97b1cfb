// matmul on sm_90a.
#pragma once

#include <vector>

#include "backend/cuda/gemm_sm90.h"

namespace ebb::ops::cuda {

std::vector<Kernel> matmul_sm90();

// The kernels by how a and b are stored, in files of their own: they compile for long. type: bf16
// or f16.
ebb::cuda::gemm::Kernels matmul_sm90_rows(DType type);            // a [M, K], b [N, K]
ebb::cuda::gemm::Kernels matmul_sm90_columns(DType type);         // a [M, K], b [K, N]
ebb::cuda::gemm::Kernels matmul_sm90_turned_columns(DType type);  // a [K, M], b [K, N]
ebb::cuda::gemm::Kernels matmul_sm90_turned_rows(DType type);     // a [K, M], b [N, K]

}  // namespace ebb::ops::cuda
