// Asynchronous copies to the device, through a ring of pinned buffers, and of results from it.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <functional>
#include <mutex>
#include <span>
#include <vector>

#include "core/device.h"

namespace ebb::cuda {

class Staging {
 public:
  explicit Staging(int device);  // its index, which is the current one
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // Enqueues the copy of `bytes` on `stream`; `from` may change when it returns.
  void copy(void* to, const void* from, size_t bytes, cudaStream_t stream);
  // The same of what `read` gives, which several threads put into pinned memory while the device
  // copies what others have put there: reading and copying overlap. Throws what `read` throws.
  void fill(void* to, int64_t bytes, const ReadBytes& read, cudaStream_t stream);
  // Enqueues copies to the host, calls `wait`, which waits for them, and leaves them where they
  // belong: small ones come through one pinned buffer, which no copy has to wait for by itself.
  void fetch(std::span<const Device::Copied> results, cudaStream_t stream,
             const std::function<void()>& wait);

 private:
  class Taken;
  Staging(int device, char* pinned) : device_(device), memory_(pinned) {}
  static char* pinned();
  void put(char* to, int64_t at, size_t count, const ReadBytes& read, cudaStream_t stream);

  static constexpr size_t slot_bytes = size_t{1} << 20;
  static constexpr size_t slots = 32;  // more than threads that read
  int device_;
  char* memory_ = nullptr;
  std::array<cudaEvent_t, slots> used_ = {};  // when a slot may be written again
  std::mutex mutex_;                          // of free_
  std::vector<size_t> free_;                  // slots that no thread writes, longest unused first
};

}  // namespace ebb::cuda
