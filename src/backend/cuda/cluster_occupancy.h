// Cluster occupancy of a device, for thread blocks limited by shared memory.
#pragma once

#include <cstdint>

#include "backend/cuda/device.h"

namespace ebb::cuda {

// Co-resident clusters of `cluster` thread blocks, at `blocks` thread blocks per SM, from the
// driver: clusters run within one GPC, and GPCs differ in their number of SMs. 0: none.
int64_t cluster_occupancy(int cluster, int64_t blocks, const CudaDevice& device);

}  // namespace ebb::cuda
