// CopyForm: what an op that only copies puts where. It is all that passes know of slices, splits
// and concatenations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace ebb {

struct CopyForm {
  struct Part {  // the range [begin, end) of an operand's `dim`
    size_t operand = 0;
    int64_t begin = 0, end = 0;
  };
  int64_t dim = 0;
  std::vector<std::vector<Part>> results = {};  // each is such parts, side by side along `dim`
};

}  // namespace ebb
