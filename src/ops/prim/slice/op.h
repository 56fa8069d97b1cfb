// slice: the indices [begin, end) of one dim.
#pragma once

#include "ir/op.h"

namespace ebb::ops {

struct Slice {
  int64_t dim = 0;
  int64_t begin = 0, end = 0;  // 0 <= begin <= end <= size
  void fields(auto&& f) {
    f("dim", dim);
    f("begin", begin);
    f("end", end);
  }
};

namespace def {
const OpDef& slice();
}

// A negative dim counts from the end. x itself if it is the whole.
Value slice(Value x, int64_t dim, int64_t begin, int64_t end);

}  // namespace ebb::ops
