// SlicesForm: operands of generated kernels that are slices of larger tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "ir/iteration_space.h"

namespace ebb::codegen {

// By operand; [] if no operand is sliced. Passes take the addresses of the first elements.
struct SlicesForm {
  std::vector<Pitch> pitch;
  std::vector<int64_t> begin;  // the first element

  bool has(size_t i) const { return i < pitch.size() && pitch[i].kept > 0; }
  // Vectors that divide this lie whole in every block of operand i, and aligned; 0: any does.
  int64_t grain(size_t i) const { return has(i) ? std::gcd(pitch[i].width, begin[i]) : 0; }
};

}  // namespace ebb::codegen
