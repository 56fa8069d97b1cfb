// Kernels of maps with broadcast tensors.
#pragma once

#include <vector>

#include "codegen/loops/loop_kernel.h"
#include "codegen/loops/segments.h"
#include "codegen/loops/slices.h"
#include "codegen/loops/swaps.h"
#include "codegen/target.h"
#include "core/dtype.h"
#include "ir/expr.h"
#include "ir/iteration_space.h"

namespace ebb::codegen {

struct StridedForm {
  Expr expr;
  std::vector<DType> in, out;
  // Strides of the inputs, then of an output, of the full tensor if segmented, then of columns of
  // one that is `concatenated`.
  IterationSpace space;
  int64_t numel = 0;
  bool unaligned = false;  // single elements only
  SegmentsForm segments = {};
  SlicesForm slices = {};
  SwapsForm swaps = {};
  std::vector<int64_t> same = {};  // by input, an earlier one that is the same tensor, or -1
  size_t concatenated = 0;         // so many last outputs are columns of one tensor
  int uses = 1;                    // that share a launch,
  bool alternate = false;          // block by block, for uses of as many elements
  int64_t elements = 0;            // of all of them; 0: they do not matter
  int most_steps = 0;              // of a thread, so that uses have one kernel; 0: any

  const std::vector<int64_t>& full_strides() const { return space.strides[in.size()]; }
  // Which of the space's strides output k has.
  size_t strides_of(size_t k) const { return in.size() + (k + concatenated < out.size() ? 0 : 1); }
};

LoopKernel write_strided(const StridedForm& form, const Target& target);

}  // namespace ebb::codegen
