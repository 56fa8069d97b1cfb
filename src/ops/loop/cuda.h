// The kernels of `loop` on CUDA, one for each kind.
#pragma once

#include "ir/kernel.h"
#include "ops/loop/op.h"
#include "ops/prim/cuda_slices.h"

namespace ebb::ops::cuda {

Kernel loop_map();
Kernel loop_rows();
Kernel loop_pixels();

// A kernel that may write a result over an operand of the same elements.
inline Kernel loop_kernel(std::string_view name) {
  return {.op = "loop",
          .name = name,
          .in_place = true,
          .may_alias = +[](const Signature& s, size_t out, size_t in) {
            const auto& a = s.as<Loop>();
            return same_segment(a.segments, out, in) && !a.slices.of(operand_of(a.segments, in));
          }};
}

}  // namespace ebb::ops::cuda
