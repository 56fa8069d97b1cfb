// Errors of the CUDA runtime as ebb::Error.
#pragma once

#include <cuda_runtime.h>

#include "base/error.h"

namespace ebb::cuda {

// Throws Error that names what failed: a call, or the kernel that was launched.
inline void check(cudaError_t status, std::string_view what) {
  require(status == cudaSuccess, "cuda: ", what, " failed (", cudaGetErrorName(status), ": ",
          cudaGetErrorString(status), ")");
}

}  // namespace ebb::cuda
