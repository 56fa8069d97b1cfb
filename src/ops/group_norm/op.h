// group_norm: (x - mean) / sqrt(var + eps) * gamma + beta, with the statistics of each sample and
// group of channels (Wu and He 2018).
#pragma once

#include "ir/op.h"

namespace ebb::ops {

struct GroupNorm {
  int64_t groups = 32;  // must divide C
  double eps = 1e-5;
  void fields(auto&& f) {
    f("groups", groups);
    f("eps", eps);
  }
};

namespace def {
const OpDef& group_norm();
}

// x [N,...,C], gamma [C] or none, beta [C] or none (not without gamma).
Value group_norm(Value x, Value gamma, Value beta, const GroupNorm& attrs);

}  // namespace ebb::ops
