#include "backend/cuda/device/error.h"

#include "backend/cuda/device/blocking.h"
#include "core/device_lost.h"
#include "core/out_of_memory.h"

namespace ebb::cuda {
namespace {

// What a kernel does wrong while it runs, or befalls the device: nothing can run on it in this
// process afterwards.
bool is_lasting(cudaError_t status) {
  switch (status) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorContextIsDestroyed:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure: return true;
    default: return false;
  }
}

}  // namespace

void check(cudaError_t status, std::string_view what) {
  if (status == cudaSuccess) return;
  const std::string reason =
      str(" failed (", cudaGetErrorName(status), ": ", cudaGetErrorString(status), ")");
  if (is_lasting(status) && !launch_blocking())
    throw DeviceLost(
        str("cuda: the device", reason, "; CUDA_LAUNCH_BLOCKING=1 names the kernel and its op"));
  if (is_lasting(status)) throw DeviceLost(str("cuda: ", what, reason));
  if (status == cudaErrorMemoryAllocation)
    throw OutOfMemory(str("cuda: ", what, reason, "; other programs may hold the device's memory"));
  fail("cuda: ", what, reason);
}

}  // namespace ebb::cuda
