// The kernels of `loop` on CUDA, one for each kind.
#pragma once

#include <algorithm>
#include <array>

#include "backend/cuda/generated/map.h"
#include "backend/cuda/generated/rows.h"
#include "codegen/loops/swaps.h"
#include "ir/kernel.h"
#include "ops/loop/op.h"
#include "ops/prim/cuda_slices.h"

namespace ebb::ops::cuda {

Kernel loop_map();
Kernel loop_rows();
Kernel loop_pixels();

// What the passes take of a use that their kernel supports; operands are the tensors as sliced.
ebb::cuda::MapUse map_use(const Signature& s);
ebb::cuda::RowUse row_use(const Signature& s);

// Whether no swapped operand is in segments, which no kernel reads so.
inline bool swaps_dense(const Loop& a) {
  return std::ranges::none_of(
      a.swaps, [&](const Swap& s) { return a.segments.has_in(static_cast<size_t>(s.operand)); });
}

// The runs of swapped operands, by operand.
inline codegen::SwapsForm swaps_form(const Loop& a) {
  codegen::SwapsForm form;
  const auto operands = static_cast<size_t>(a.expr.inputs()) - a.reductions.size();
  for (size_t i = 0; i < operands; ++i) form.runs.push_back(a.swaps.run_of(i));
  return form;
}

// Operands that are one tensor, as far as they read the same of it.
inline std::vector<int64_t> same_tensors(const Loop& a) {
  std::vector<int64_t> same = a.same.values;
  const auto range = [&](size_t operand) {
    const auto k = a.slices.of(operand);
    return k ? std::array{a.slices.begin[*k], a.slices.end[*k], a.slices.dim(*k)}
             : std::array<int64_t, 3>{};
  };
  for (size_t i = 0; i < same.size(); ++i)
    if (same[i] >= 0 && range(i) != range(static_cast<size_t>(same[i]))) same[i] = -1;
  return same;
}

// A kernel that may write a result over an operand of the same elements.
inline Kernel loop_kernel(std::string_view name) {
  return {.op = "loop",
          .name = name,
          .in_place = true,
          .may_alias = +[](const Signature& s, size_t out, size_t in) {
            const auto& a = s.as<Loop>();
            const bool wide = a.concatenated != 0 && out + 1 == s.out.size();
            return !wide && same_segment(a.segments, out, in) &&
                   !a.slices.of(operand_of(a.segments, in)) && a.swaps.empty();
          }};
}

}  // namespace ebb::ops::cuda
