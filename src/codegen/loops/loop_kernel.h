// LoopKernel: what the writers of loops give.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "codegen/ir.h"
#include "codegen/parameters.h"

namespace ebb::codegen {

// A kernel and its launch. `parameters` is complete but for the addresses at `pointers`: of the
// inputs in `used`, which counts every segment, then of the outputs.
struct LoopKernel {
  Kernel kernel;
  Parameters parameters;
  std::vector<int64_t> pointers;
  std::vector<size_t> used;
  int64_t blocks = 0;
  int threads = 256, cluster = 1;
  int64_t shared = 0;  // bytes of dynamic shared memory
  int steps = 1;       // of a thread, in maps
};

// Whether uses differ in their parameters alone, which is all that a launch can vary, and these fit
// into one.
bool share_a_launch(std::span<const LoopKernel> uses);

}  // namespace ebb::codegen
