// The link of an exchange between GPUs of one host that reach each other's memory: CUDA's memory
// handles between processes, copy engines, and waits of streams for values in memory.
#pragma once

#include <memory>
#include <string>

#include "backend/cuda/device/device.h"
#include "backend/cuda/peers/exchange.h"
#include "core/communicator.h"

namespace ebb::cuda::peers {

// A link, or why there can be none. All ranks get the same.
struct LinkOrObstacle {
  std::unique_ptr<Link> link;
  std::string obstacle;
};

// All ranks call it, each with its GPU, and its place on the host's bus. Work is enqueued where the
// device's kernels go, so that it can be recorded in a graph; all of it in one order of streams.
LinkOrObstacle link(RankGroup& group, CudaDevice& device, const std::string& bus_id);

}  // namespace ebb::cuda::peers
