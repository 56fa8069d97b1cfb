// conv2d on sm_90a.
#pragma once

#include <vector>

#include "backend/cuda/gemm/sm90/problem.h"

namespace ebb::ops::cuda {

std::vector<Kernel> conv2d_sm90();

// The implicit GEMM of a use of conv2d.
ebb::cuda::gemm::Problem conv2d_sm90_problem(const Signature& s);
// The kernels by their tiles. type: bf16 or f16.
ebb::cuda::gemm::Kernels conv2d_sm90_kernels(DType type);

}  // namespace ebb::ops::cuda
