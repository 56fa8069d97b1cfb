// Cluster occupancy of the current device, for thread blocks limited by shared memory.
#pragma once

#include <cstdint>

namespace ebb::cuda {

// Co-resident clusters of `cluster` thread blocks, at `blocks` thread blocks per SM, from the
// driver: clusters run within one GPC, and GPCs differ in their number of SMs. 0: none.
int64_t cluster_occupancy(int cluster, int64_t blocks, int64_t shared_per_block);

}  // namespace ebb::cuda
