// The text of maps with broadcast tensors.
#pragma once

#include <vector>

#include "backend/cuda/generated/segments.h"
#include "backend/cuda/generated/slices.h"
#include "backend/cuda/generated/swaps.h"
#include "codegen/ir.h"
#include "codegen/parameters.h"
#include "core/dtype.h"
#include "ir/expr.h"
#include "ir/iteration_space.h"

namespace ebb::cuda {

struct StridedForm {
  Expr expr;
  std::vector<DType> in, out;
  IterationSpace
      space;  // strides of the inputs, then of an output; of the full tensor if segmented
  int64_t numel = 0;
  bool unaligned = false;  // single elements only
  SegmentsForm segments = {};
  SlicesForm slices = {};
  SwapsForm swaps = {};
  std::vector<int64_t> same = {};  // by input, an earlier one that is the same tensor, or -1
  int uses = 1;                    // of the text, that share a launch,
  bool alternate = false;          // block by block, for uses of as many elements
  int64_t elements = 0;            // of all of them
  int sm_count = 0;                // 0: elements do not matter
  int most_steps = 0;              // of a thread, so that uses have one text; 0: any
};

// A generated kernel; `parameters` is complete but for the pointers at `pointers` (of the inputs in
// `used`, which counts every segment, then of the outputs).
struct StridedText {
  codegen::Kernel code;
  codegen::Parameters parameters;
  std::vector<int64_t> pointers;
  std::vector<size_t> used;
  int threads = 256, steps = 1;
  int64_t blocks = 0;
};
StridedText write_strided(const StridedForm& form, int capability);

}  // namespace ebb::cuda
