// Collectives between GPUs, over NCCL.
#pragma once

#include <functional>
#include <memory>

#include "backend/cuda/nccl/library.h"
#include "core/communicator.h"

namespace ebb::cuda::nccl {

// Throws the same Error on all ranks where two have the same GPU. `uuid` is the GPU's, `name` is
// for people.
void check_own_gpu(RankGroup& group, std::string_view uuid, std::string_view name);

// All ranks call it, each on its GPU. Work is enqueued on what `stream` gives, so that it can be
// recorded in a graph; what is called with several operands is one operation of NCCL's. Sums are
// NCCL's: in its order, which is the same every time, and of 16 bits rounded at every rank. Throws
// Error: NCCL's versions differ, or it cannot begin.
using StreamOf = std::function<cudaStream_t()>;
std::unique_ptr<Communicator> communicator(const Library& library, RankGroup& group,
                                           StreamOf stream);

}  // namespace ebb::cuda::nccl
