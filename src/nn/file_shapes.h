// Queries on the tensors of a file.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/error.h"
#include "nn/weights.h"

namespace ebb::nn {

// How many tensors <first><0, 1, ...><last> there are in a row.
inline int64_t count_in_a_row(const FileShapes& tensors, std::string_view first,
                              std::string_view last) {
  int64_t n = 0;
  while (tensors.contains(str(first, n, last))) ++n;
  return n;
}

}  // namespace ebb::nn
