// pad: zeros before and after, in every dim.
#pragma once

#include "ir/op.h"

namespace ebb::ops {

struct Pad {
  std::vector<int64_t> before, after;  // one number a dim, none negative
  void fields(auto&& f) {
    f("before", before);
    f("after", after);
  }
};

namespace def {
const OpDef& pad();
}

Value pad(Value x, const Pad& attrs);  // x itself if nothing is added

}  // namespace ebb::ops
