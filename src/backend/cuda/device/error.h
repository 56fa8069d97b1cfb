// Errors of the CUDA runtime as ebb::Error.
#pragma once

#include <cuda_runtime.h>

#include <string_view>

#include "base/error.h"

namespace ebb::cuda {

// Throws Error, or OutOfMemory or DeviceLost, that names what failed: a call, or the kernel that
// was launched. Where a kernel failed while it ran, whose it was is not known: any later call
// returns that, and so says the Error, unless every kernel is waited for (blocking.h).
void check(cudaError_t status, std::string_view what);

}  // namespace ebb::cuda
