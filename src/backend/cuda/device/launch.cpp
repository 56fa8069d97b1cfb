#include "backend/cuda/device/launch.h"

#include "backend/cuda/device/blocking.h"
#include "backend/cuda/device/error.h"

namespace ebb::cuda {

void launch_kernel(const char* name, const void* kernel, const Launch& l, void** arguments,
                   CudaDevice& device) {
  constexpr int64_t without_opt_in = 48 << 10;
  if (l.grid.x == 0 || l.grid.y == 0 || l.grid.z == 0) return;
  if (l.shared > without_opt_in)
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(l.shared)),
          name);
  constexpr unsigned portable_cluster = 8;
  if (l.cluster > portable_cluster)
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1), name);
  cudaLaunchAttribute attributes[2] = {};
  unsigned count = 0;
  if (device.take_early_start() && device.capability() >= 90) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (l.cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {l.cluster, 1, 1};
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = l.grid;
  config.blockDim = l.block;
  config.dynamicSmemBytes = static_cast<size_t>(l.shared);
  config.stream = device.stream();
  config.attrs = attributes;
  config.numAttrs = count;
  const cudaError_t status = cudaLaunchKernelExC(&config, kernel, arguments);
  if (status == cudaErrorNoKernelImageForDevice)  // no text is made for an error that is none
    fail("cuda: ", name, " was not compiled for ", device.description(),
         "; build with -DEBB_CUDA_ARCHS=all");
  check(status, name);
  if (launch_blocking()) check(cudaStreamSynchronize(device.stream()), name);
}

}  // namespace ebb::cuda
