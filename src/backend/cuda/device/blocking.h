// CUDA's own switch for finding the kernel that fails: with CUDA_LAUNCH_BLOCKING=1 every kernel is
// waited for, and graphs are not used.
#pragma once

#include <cstdlib>
#include <string_view>

namespace ebb::cuda {

// As it was at the first call: each launch asks.
inline bool launch_blocking() {
  static const bool on = [] {
    const char* value = std::getenv("CUDA_LAUNCH_BLOCKING");
    return value && *value && std::string_view(value) != "0";
  }();
  return on;
}

}  // namespace ebb::cuda
