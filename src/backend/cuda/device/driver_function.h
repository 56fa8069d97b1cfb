// Functions of the driver, which has no import library here.
#pragma once

#include <cuda_runtime.h>

#include "backend/cuda/device/error.h"

namespace ebb::cuda {

// Throws Error: the driver is too old, or there is none.
template <class F>
F driver_function(const char* name) {
  constexpr unsigned cuda_12 = 12000;
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found = {};
  check(cudaGetDriverEntryPointByVersion(name, &address, cuda_12, cudaEnableDefault, &found), name);
  require(found == cudaDriverEntryPointSuccess, "cuda: the driver is too old: it has no ", name);
  return reinterpret_cast<F>(address);
}

}  // namespace ebb::cuda
