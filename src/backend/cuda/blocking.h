// CUDA's own switch for finding the kernel that fails: with CUDA_LAUNCH_BLOCKING=1 every kernel is
// waited for, and graphs are not used.
#pragma once

#include <cstdlib>
#include <string_view>

namespace ebb::cuda {

inline bool launch_blocking() {
  const char* value = std::getenv("CUDA_LAUNCH_BLOCKING");
  return value && *value && std::string_view(value) != "0";
}

}  // namespace ebb::cuda
