// Columns as the passes of generated kernels take them.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "backend/cuda/columns.h"
#include "ops/prim/columns.h"
#include "ops/prim/parts.h"

namespace ebb::ops::cuda {

struct ColumnsPass {
  ebb::cuda::ColumnsForm form;
  std::vector<int64_t> bytes = {};  // by tensor: from its start to the operand; [] if all are 0

  // The addresses of the operands that lie in these tensors.
  std::vector<void*> in(std::span<void* const> tensors) const {
    std::vector<void*> at(tensors.begin(), tensors.end());
    for (size_t i = 0; i < bytes.size(); ++i) at[i] = static_cast<char*>(at[i]) + bytes[i];
    return at;
  }
};

// Whether kernels can step over the tensors that are given: by strides of 32 bits.
inline bool can_step(const Columns& c, std::span<const Type> given) {
  constexpr int64_t most = int64_t{1} << 32;
  return c.columns.empty() ||
         std::ranges::all_of(given, [](const Type& t) { return t.shape.numel() < most; });
}

// `given` are the tensors of an op, of which operands may lie in parts.
inline ColumnsPass columns_pass(const Columns& c, const Parts& parts, std::span<const Type> given) {
  ColumnsPass pass;
  if (c.columns.empty()) return pass;
  pass.bytes.resize(given.size());
  for (size_t tensor = 0, operand = 0; tensor < given.size(); ++operand) {
    const auto at = c.of(operand);
    pass.form.width.push_back(at ? given[tensor].shape[-1] : 0);
    pass.form.begin.push_back(at ? c.begin[*at] : 0);
    pass.bytes[tensor] = pass.form.begin.back() * size_of(given[tensor].dtype);
    tensor += parts.joins(operand) ? parts.widths.size() : 1;
  }
  return pass;
}

}  // namespace ebb::ops::cuda
