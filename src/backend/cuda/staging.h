// Copies from ordinary host memory that do not wait for the device: through pinned memory in turn.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstddef>

namespace ebb::cuda {

class Staging {
 public:
  Staging();
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // Enqueues the copy of `bytes` on `stream`; `from` may change when it returns.
  void copy(void* to, const void* from, size_t bytes, cudaStream_t stream);

 private:
  static constexpr size_t piece = size_t{1} << 20;
  static constexpr size_t pieces = 16;
  char* memory_ = nullptr;
  std::array<cudaEvent_t, pieces> used_ = {};  // when a piece may be written again
  size_t next_ = 0;
};

}  // namespace ebb::cuda
