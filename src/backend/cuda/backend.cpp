// How many CUDA devices there are, and one of them.
#include <cuda_runtime.h>

#include <memory>
#include <string>

#include "backend/cuda/device/device.h"
#include "base/error.h"

namespace ebb::backend::cuda {

namespace {

// The first release of the driver that serves a runtime's major version: all minor ones run on it.
std::string first_driver(int runtime) {
  constexpr int thousand = 1000;
  switch (runtime / thousand) {
    case 12: return "525";
    case 13: return "580";
    default: return str("for CUDA ", runtime / thousand);
  }
}

std::string why_no_device(cudaError_t status) {
  if (status == cudaSuccess) return "none found";
  if (status != cudaErrorInsufficientDriver) return cudaGetErrorString(status);
  const auto version = [](int v) { return str(v / 1000, ".", v % 1000 / 10); };
  int driver = 0, runtime = 0;
  cudaDriverGetVersion(&driver);
  cudaRuntimeGetVersion(&runtime);
  if (driver == 0) return "no NVIDIA driver";
  return str("the driver serves CUDA ", version(driver), ", and ", version(runtime),
             " is needed: driver ", first_driver(runtime), " or newer");
}

}  // namespace

std::shared_ptr<Device> open(const DeviceOptions& options) {
  if (!options.chip.empty())
    return std::make_shared<ebb::cuda::CudaDevice>(ebb::cuda::described_chip(options.chip));
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  require(status == cudaSuccess && count > 0, "device: there is no CUDA device here (",
          why_no_device(status), ")");
  require(options.index >= 0 && options.index < count, "device: there are ", count,
          " CUDA devices here (asked for index ", options.index, ")");
  return std::make_shared<ebb::cuda::CudaDevice>(options.index);
}

int64_t count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

}  // namespace ebb::backend::cuda
