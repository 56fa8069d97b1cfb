#include "backend/cuda/generated/cluster_occupancy.h"

#include <map>
#include <mutex>
#include <tuple>

#include "backend/cuda/device/error.h"

namespace ebb::cuda {
namespace {

// Stands in for kernels that are not compiled yet.
__global__ void nothing() {}

int64_t query_driver(int cluster, int64_t blocks, int64_t shared_per_block) {
  constexpr int64_t reserved = 1 << 10;  // bytes per thread block
  constexpr int warp = 32;
  const auto* kernel = reinterpret_cast<const void*>(nothing);
  const auto shared = (shared_per_block + reserved) / blocks - reserved;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             static_cast<int>(shared_per_block)),
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

}  // namespace

// The driver takes tens of microseconds for each answer, which stays the same.
int64_t cluster_occupancy(int cluster, int64_t blocks, int64_t shared_per_block) {
  static std::mutex mutex;
  static std::map<std::tuple<int, int, int64_t>, int64_t> answers;
  int index = 0;
  check(cudaGetDevice(&index), "cluster occupancy");
  const std::tuple key(index, cluster, blocks);
  {
    const std::lock_guard lock(mutex);
    if (const auto it = answers.find(key); it != answers.end()) return it->second;
  }
  const int64_t answer = query_driver(cluster, blocks, shared_per_block);
  const std::lock_guard lock(mutex);
  return answers[key] = answer;
}

}  // namespace ebb::cuda
