// The link of an exchange between GPUs of one host that reach each other's memory: CUDA's memory
// handles between processes, copy engines, and waits of streams for values in memory.
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "backend/cuda/peers/exchange.h"
#include "core/communicator.h"

namespace ebb::cuda::peers {

// Why these GPUs cannot exchange by copies, as all ranks see it alike; "": they can. All ranks call
// it, each with its GPU: its index here, and its place on the host's bus.
std::string obstacle(RankGroup& group, int index, std::string_view bus_id);

// All ranks call it, where there is no obstacle. Work is enqueued on what `stream` gives, so that
// it can be recorded in a graph. Throws Error.
using StreamOf = std::function<cudaStream_t()>;
std::unique_ptr<Link> link(RankGroup& group, StreamOf stream);

}  // namespace ebb::cuda::peers
