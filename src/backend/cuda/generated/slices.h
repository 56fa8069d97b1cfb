// SlicesForm: operands of generated kernels that are some columns of wider tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace ebb::cuda {

// By operand; [] if no operand is sliced. Passes take the addresses of the first columns.
struct SlicesForm {
  std::vector<int64_t> width;  // of the tensor's rows; 0: the operand is not sliced
  std::vector<int64_t> begin;  // its first column

  // Vectors that divide this lie whole in every row of operand i, and aligned; 0: any does.
  int64_t grain(size_t i) const { return i < width.size() ? std::gcd(width[i], begin[i]) : 0; }
};

}  // namespace ebb::cuda
