// conv2d_dw on sm_90a.
#pragma once

#include <vector>

#include "backend/cuda/gemm/sm90/problem.h"

namespace ebb::ops::cuda {

std::vector<Kernel> conv2d_dw_sm90();
std::vector<Kernel> conv2d_dw_few_channels();

// The kernels by their tiles. type: bf16 or f16.
ebb::cuda::gemm::Kernels conv2d_dw_sm90_kernels(DType type);

}  // namespace ebb::ops::cuda
