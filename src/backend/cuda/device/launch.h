// launch(): the one way to start a kernel.
#pragma once

#include <cuda_runtime.h>

#include "backend/cuda/device/device.h"

namespace ebb::cuda {

struct Launch {
  dim3 grid = 1, block = 1;
  int64_t shared = 0;    // bytes of dynamic shared memory
  unsigned cluster = 1;  // blocks of a cluster, along x
};

// Enqueues `kernel` (an address of a __global__ function or of generated code) with its arguments'
// addresses. Throws Error that names it. Kernels begin with begin() of kit.cuh: on sm_90 they start
// while the one before still runs.
void launch_kernel(const char* name, const void* kernel, const Launch& l, void** arguments,
                   CudaDevice& device);

// A kernel with one parameter struct, taken by value: void k(const __grid_constant__ P p).
template <class P>
void launch(const char* name, void (*kernel)(P), const Launch& l, const P& p, CudaDevice& device) {
  void* arguments[] = {const_cast<P*>(&p)};
  launch_kernel(name, reinterpret_cast<const void*>(kernel), l, arguments, device);
}

// Blocks of `threads` that cover `count` items.
inline unsigned blocks_for(int64_t count, int64_t threads) {
  return static_cast<unsigned>((count + threads - 1) / threads);
}

}  // namespace ebb::cuda
