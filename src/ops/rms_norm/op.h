// rms_norm: x / sqrt(mean(x^2) + eps) * gamma over the last dim (Zhang and Sennrich 2019).
#pragma once

#include "ir/op.h"

namespace ebb::ops {

struct RmsNorm {
  double eps = 1e-6;
  void fields(auto&& f) { f("eps", eps); }
};

namespace def {
const OpDef& rms_norm();
}

Value rms_norm(Value x, Value gamma, const RmsNorm& attrs);  // x [...,C], gamma [C] or none

}  // namespace ebb::ops
