#include "backend/cuda/staging.h"

#include <algorithm>
#include <cstring>

#include "backend/cuda/error.h"

namespace ebb::cuda {

Staging::Staging() {
  void* memory = nullptr;
  check(cudaHostAlloc(&memory, piece * pieces, cudaHostAllocDefault), "allocating host memory");
  memory_ = static_cast<char*>(memory);
  for (cudaEvent_t& e : used_)
    check(cudaEventCreateWithFlags(&e, cudaEventDisableTiming), "making an event");
}

Staging::~Staging() {
  for (const cudaEvent_t e : used_) cudaEventDestroy(e);
  cudaFreeHost(memory_);
}

void Staging::copy(void* to, const void* from, size_t bytes, cudaStream_t stream) {
  for (size_t at = 0; at < bytes; at += piece) {
    const size_t i = next_++ % pieces, count = std::min(piece, bytes - at);
    check(cudaEventSynchronize(used_[i]), "copying to the device");
    std::memcpy(memory_ + i * piece, static_cast<const char*>(from) + at, count);
    check(cudaMemcpyAsync(static_cast<char*>(to) + at, memory_ + i * piece, count,
                          cudaMemcpyHostToDevice, stream),
          "copying to the device");
    check(cudaEventRecord(used_[i], stream), "copying to the device");
  }
}

}  // namespace ebb::cuda
