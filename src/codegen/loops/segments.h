// SegmentsForm: segmented operands and results of generated kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ebb::codegen {

// Segmented operands and results: each segment is a dense tensor of its width, and together they
// have the shape of the pass.
struct SegmentsForm {
  std::vector<int64_t> widths;
  std::vector<bool> segmented_in,
      segmented_out;  // by operand, by result; [] where there are no widths
  // The number of tensors of operand or result i; `which`: segmented_in or segmented_out.
  size_t of(size_t i, const std::vector<bool>& which) const {
    return i < which.size() && which[i] ? widths.size() : 1;
  }
};

}  // namespace ebb::codegen
