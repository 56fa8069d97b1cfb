// Reductions across threads, in a fixed order.
#pragma once

#include <functional>
#include <vector>

#include "codegen/builder.h"

namespace ebb::codegen {

// Combines two values of the k-th reduction.
using Combine = std::function<F32(size_t k, F32 a, F32 b)>;

// Each value over neighbouring `lanes` threads (a power of two, at most a subgroup); all of them
// get the result. A barrier must come before, of the subgroup or the block.
std::vector<F32> subgroup_reduce(Builder& b, std::vector<F32> values, int lanes,
                                 const Combine& combine);

// Each value, reduced within subgroups already, over a block of `threads` (a power of two of
// subgroups); all of them get the result.
std::vector<F32> block_reduce(Builder& b, const std::vector<F32>& values, int threads,
                              const Combine& combine);

}  // namespace ebb::codegen
