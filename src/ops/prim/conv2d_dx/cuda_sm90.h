// conv2d_dx on sm_90a.
#pragma once

#include <vector>

#include "backend/cuda/gemm/sm90/problem.h"

namespace ebb::ops::cuda {

std::vector<Kernel> conv2d_dx_sm90();
std::vector<Kernel> conv2d_dx_few_channels();

// The kernels by their tiles. type: bf16 or f16.
ebb::cuda::gemm::Kernels conv2d_dx_sm90_kernels(DType type);
ebb::cuda::gemm::Kernels conv2d_dx_sm90_phases(DType type);  // of strides above 1

}  // namespace ebb::ops::cuda
