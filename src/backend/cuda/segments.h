// SegmentsForm: operands and results of generated kernels that lie in parts along the last dim.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ebb::cuda {

// Operands and results that lie in parts, side by side along the last dim: each part is a dense
// tensor of its width. The whole has the shape of the pass.
struct SegmentsForm {
  std::vector<int64_t> widths;
  std::vector<bool> segmented_in,
      segmented_out;  // by operand, by result; [] where there are no widths
  // Tensors of operand or result i, as `which` (joined or cut) says.
  size_t of(size_t i, const std::vector<bool>& which) const {
    return i < which.size() && which[i] ? widths.size() : 1;
  }
};

}  // namespace ebb::cuda
