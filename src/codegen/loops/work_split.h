// Partitioning of work among threads: rounding up, and heuristics that the layouts of generated
// kernels share.
#pragma once

#include <cstdint>
#include <vector>

#include "base/round_up.h"
#include "core/dtype.h"

namespace ebb::codegen {

// Elements of a thread's vector: 16 bytes of the widest tensor of full extent.
int vector_of(const std::vector<DType>& full);
// Unrolled vectors per thread: enough loads in flight, but code that compiles fast. `cost`:
// instructions per vector.
int steps_of(int loads, int cost);

// Of `steps`, those that leave two thread blocks for each SM, where a launch has so many elements
// in all (0: they do not matter) and a thread block so many a step.
int steps_for(int steps, int64_t elements, int64_t of_block, int sm_count);

// By result: whether it is rounded to 16 bits, which forgives less exact functions.
std::vector<bool> narrow_results(const std::vector<DType>& out);

}  // namespace ebb::codegen
