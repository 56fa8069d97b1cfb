#include "backend/cuda/peers/memory.h"

#include <cstring>
#include <utility>

#include "backend/cuda/device/error.h"

namespace ebb::cuda::peers {

SharedMemory::SharedMemory(int64_t bytes) {
  void* data = nullptr;
  check(cudaMalloc(&data, static_cast<size_t>(bytes)), "allocating staging memory");
  data_ = static_cast<std::byte*>(data);
  check(cudaMemset(data, 0, static_cast<size_t>(bytes)), "clearing staging memory");
  check(cudaDeviceSynchronize(), "clearing staging memory");
}

std::string SharedMemory::handle() const {
  cudaIpcMemHandle_t handle;
  check(cudaIpcGetMemHandle(&handle, data_), "sharing staging memory");
  return {handle.reserved, sizeof handle.reserved};
}

MappedMemory::MappedMemory(const std::string& handle) {
  cudaIpcMemHandle_t h;
  require(handle.size() == sizeof h.reserved, "cuda: not a handle of memory (", handle.size(),
          " bytes)");
  std::memcpy(h.reserved, handle.data(), sizeof h.reserved);
  check(cudaIpcOpenMemHandle(&data_, h, cudaIpcMemLazyEnablePeerAccess),
        "opening another rank's memory");
}

MappedMemory::~MappedMemory() {
  if (data_) cudaIpcCloseMemHandle(data_);
}

MappedMemory::MappedMemory(MappedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)) {}

}  // namespace ebb::cuda::peers
