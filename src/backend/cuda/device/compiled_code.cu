#include "backend/cuda/device/compiled_code.h"

#include "backend/cuda/device/error.h"

namespace ebb::cuda {
namespace {

// Compiled for every target.
__global__ void nothing() {}

}  // namespace

bool has_compiled_code() {
  cudaFuncAttributes attributes = {};
  const cudaError_t status = cudaFuncGetAttributes(&attributes, nothing);
  if (status == cudaErrorNoKernelImageForDevice || status == cudaErrorInvalidDeviceFunction) {
    static_cast<void>(cudaGetLastError());
    return false;
  }
  check(status, "loading the kernels");
  return true;
}

const char* compiled_targets() {
  return
#include "ebb/gen/cuda_targets.inc"
      ;
}

}  // namespace ebb::cuda
