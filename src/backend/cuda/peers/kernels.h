// The kernels of an exchange between devices.
#pragma once

#include <span>

#include "backend/cuda/device/device.h"
#include "backend/cuda/peers/exchange.h"

namespace ebb::cuda::peers {

// The terms of the other ranks are in this rank's staging memory: `ranks` slots of `bytes`.
struct Slots {
  std::byte* first = nullptr;
  int64_t bytes = 0;
  int rank = 0, ranks = 0;
};

// Throw Error. Sums are of f32, bf16, f16.
void enqueue_moves(std::span<const Link::Move> moves, CudaDevice& device);
void enqueue_sums(std::span<const Link::Sum> sums, const Slots& slots, CudaDevice& device);

}  // namespace ebb::cuda::peers
