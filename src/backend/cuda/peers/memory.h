// Memory of a GPU that several processes of a host map.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace ebb::cuda::peers {

// Zero at first. It is freed with the process: to free what another process has mapped is undefined
// (CUDA's description of cudaIpcGetMemHandle). Throws Error.
class SharedMemory {
 public:
  explicit SharedMemory(int64_t bytes);
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  std::byte* data() const { return data_; }
  std::string handle() const;  // for other processes; throws Error

 private:
  std::byte* data_ = nullptr;
};

// Another process' SharedMemory, as this one addresses it. Throws Error.
class MappedMemory {
 public:
  explicit MappedMemory(const std::string& handle);
  ~MappedMemory();
  MappedMemory(MappedMemory&& other) noexcept;
  MappedMemory& operator=(MappedMemory&&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  void* data_ = nullptr;
};

}  // namespace ebb::cuda::peers
