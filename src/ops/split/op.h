// split: a tensor, divided along one dim into equal parts.
#pragma once

#include <vector>

#include "ir/op.h"

namespace ebb::ops {

struct Split {
  int64_t dim = 0;
  int64_t parts = 1;  // must divide the size
  void fields(auto&& f) {
    f("dim", dim);
    f("parts", parts);
  }
};

namespace def {
const OpDef& split();
}

// The parts in order. A negative dim counts from the end.
std::vector<Value> split(Value x, int64_t dim, int64_t parts);

}  // namespace ebb::ops
