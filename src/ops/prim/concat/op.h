// concat: the inputs one after the other along one dim.
#pragma once

#include "ir/op.h"

namespace ebb::ops {

struct Concat {
  int64_t dim = 0;
  void fields(auto&& f) { f("dim", dim); }
};

namespace def {
const OpDef& concat();
}

// All sizes but that of `dim` must be equal, and the dtypes. A negative dim counts from the end.
Value concat(std::vector<Value> x, int64_t dim);

}  // namespace ebb::ops
