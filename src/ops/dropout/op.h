// dropout: every element is 0 with probability p, else scaled by 1 / (1 - p) (Srivastava et al.
// 2014). Outside of training the caller leaves it out.
#pragma once

#include <string>

#include "ops/prim/random/op.h"

namespace ebb::ops {

struct Dropout {
  double p = 0;     // in [0, 1)
  std::string use;  // of the random numbers; another one for every layer
  void fields(auto&& f) {
    f("p", p);
    f("use", use);
  }
};

namespace def {
const OpDef& dropout();
}

Value dropout(Value x, const RandomKeys& key,
              const Dropout& attrs);  // x [N,...]; x itself if p = 0

}  // namespace ebb::ops
