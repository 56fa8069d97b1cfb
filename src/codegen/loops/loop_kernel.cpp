#include "codegen/loops/loop_kernel.h"

#include <algorithm>

namespace ebb::codegen {

bool share_a_launch(std::span<const LoopKernel> uses) {
  constexpr int64_t most = 4096;  // bytes of parameters, on every chip and driver
  return std::ranges::all_of(uses,
                             [&](const LoopKernel& use) {
                               return use.kernel == uses[0].kernel && use.used == uses[0].used &&
                                      use.pointers == uses[0].pointers;
                             }) &&
         SharedLaunch::bytes(static_cast<int>(uses.size()), uses[0].parameters.size()) <= most;
}

}  // namespace ebb::codegen
