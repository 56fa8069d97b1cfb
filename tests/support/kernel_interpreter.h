// Runs generated kernels on the host: all threads of a block, or of a cluster, step by step
// together. Slow, exact, and without a device.
#pragma once

#include <vector>

#include "codegen/ir.h"

namespace ebb::testing {

struct Arithmetic {
  bool fused = true;      // fma() rounds once
  int approximate = 0;    // units in the last place added to what approximate functions give
  float exp2_beyond = 0;  // relative error of exp2 outside of -30 < x <= 16
};

struct HostLaunch {
  int blocks = 1, threads = 1, cluster = 1;
  int64_t shared = 0;  // bytes of dynamic shared memory
  Arithmetic arithmetic = {};
  // Where values live and which instructions vanish, if an emitter shares storage; else each value
  // has its own.
  const std::vector<int32_t>* same_as = nullptr;
  const std::vector<bool>* vanishes = nullptr;
};

// `parameters`: the parameter struct; addresses in it are the host's. Throws Error where a thread
// reaches beyond the block's memory, or needs a value that it has not computed.
void interpret(const codegen::Kernel& kernel, const void* parameters, const HostLaunch& launch);

}  // namespace ebb::testing
