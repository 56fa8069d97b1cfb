// Slices as the passes of generated kernels take them.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "codegen/loops/slices.h"
#include "ops/prim/segments.h"
#include "ops/prim/slices.h"

namespace ebb::ops::cuda {

// Whether kernels can step over these tensors: by strides of 32 bits.
inline bool can_step(std::span<const Type> tensors) {
  constexpr int64_t most = int64_t{1} << 32;
  return std::ranges::all_of(tensors, [](const Type& t) { return t.shape.numel() < most; });
}
// The same of the tensors that are given, of which operands are slices.
inline bool can_step(const Slices& c, std::span<const Type> given) {
  return c.operands.empty() || can_step(given);
}

// `given` are the tensors of an op, of which operands may lie in segments.
inline codegen::SlicesForm slices_form(const Slices& c, const Segments& segments,
                                       std::span<const Type> given) {
  codegen::SlicesForm form;
  if (c.operands.empty()) return form;
  for (size_t tensor = 0, operand = 0; tensor < given.size(); ++operand) {
    const auto at = c.of(operand);
    const Shape& whole = given[tensor].shape;
    int64_t step = 1;  // elements from one of the sliced dim to the next
    for (int64_t d = at ? c.dim(*at) + 1 : 0; d < 0; ++d) step *= whole[d];
    form.pitch.push_back(at ? Pitch{(c.end[*at] - c.begin[*at]) * step, whole[c.dim(*at)] * step}
                            : Pitch{});
    form.begin.push_back(at ? c.begin[*at] * step : 0);
    tensor += segments.has_in(operand) ? segments.widths.size() : 1;
  }
  return form;
}

}  // namespace ebb::ops::cuda
