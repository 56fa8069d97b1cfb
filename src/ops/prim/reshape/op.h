// reshape: the same elements in row-major order under another shape; nothing moves.
#pragma once

#include "ir/op.h"

namespace ebb::ops {

struct Reshape {
  std::vector<int64_t> shape;
  void fields(auto&& f) { f("shape", shape); }
};

namespace def {
const OpDef& reshape();
}

// One size may be -1: it follows from the others. x itself if it has the shape.
Value reshape(Value x, Shape shape);

}  // namespace ebb::ops
