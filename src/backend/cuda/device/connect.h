// How the GPUs of a run exchange tensors.
#pragma once

#include <memory>
#include <string>

#include "backend/cuda/device/device.h"

namespace ebb::cuda {

// By copies where the GPUs reach each other's memory (peers/): NCCL's kernels take multiprocessors
// from those of a step. EBB_COLLECTIVES, "copies" or "nccl", decides. All ranks call it; what was
// connected has passed a test. Throws Error.
std::shared_ptr<Communicator> connect(RankGroup& group, CudaDevice& device,
                                      const std::string& bus_id);

}  // namespace ebb::cuda
