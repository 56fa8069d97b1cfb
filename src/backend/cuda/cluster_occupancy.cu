#include "backend/cuda/cluster_occupancy.h"

#include "backend/cuda/error.h"

namespace ebb::cuda {
namespace {

// Stands in for kernels that are not compiled yet.
__global__ void nothing() {}

}  // namespace

int64_t cluster_occupancy(int cluster, int64_t blocks, const CudaDevice& device) {
  constexpr int64_t reserved = 1 << 10;  // bytes per thread block
  constexpr int warp = 32;
  const auto* kernel = reinterpret_cast<const void*>(nothing);
  const auto shared = (device.shared_per_block() + reserved) / blocks - reserved;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(device.shared_per_block())),
        "cluster occupancy");
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1),
        "cluster occupancy");
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {static_cast<unsigned>(cluster), 1, 1};
  cudaLaunchConfig_t config = {};
  config.gridDim = static_cast<unsigned>(cluster);
  config.blockDim = warp;
  config.dynamicSmemBytes = static_cast<size_t>(shared);
  config.attrs = &attribute;
  config.numAttrs = 1;
  int clusters = 0;
  if (cudaOccupancyMaxActiveClusters(&clusters, kernel, &config) == cudaSuccess) return clusters;
  static_cast<void>(cudaGetLastError());  // the device does not run such clusters
  return 0;
}

}  // namespace ebb::cuda
