// The general CUDA kernels of matmul: any shapes and dtypes, every architecture.
#pragma once

#include "backend/cuda/gemm/general/plan.h"
#include "ir/kernel.h"

namespace ebb::ops::cuda {

// One for each way that b is stored, in files of their own: they compile for long.
Program matmul_nn(const Signature& s, const ebb::cuda::GemmPlan& plan,
                  ebb::cuda::CudaDevice& device);  // b [..., K, N]
Program matmul_nt(const Signature& s, const ebb::cuda::GemmPlan& plan,
                  ebb::cuda::CudaDevice& device);  // b [..., N, K]

ebb::cuda::GemmTask matmul_task(const Signature& s);

// Sums of one product.
Kernel matmul_general();
// Uses whose form is an activation, a gradient of one or a gate, of any float dtype: a pass behind
// the GEMM.
Kernel matmul_activated();

}  // namespace ebb::ops::cuda
