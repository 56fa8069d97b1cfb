// How many clusters of blocks with much shared memory a device runs at once.
#pragma once

#include <cstdint>

#include "backend/cuda/device.h"

namespace ebb::cuda {

// Clusters of `cluster` blocks that run at once, where the blocks are so large that a
// SM has room for `blocks` of them: what the driver says, for a cluster's blocks run on
// neighbouring SMs, and not every neighbourhood has equally many. 0: none.
int64_t cluster_occupancy(int cluster, int64_t blocks, const CudaDevice& device);

}  // namespace ebb::cuda
