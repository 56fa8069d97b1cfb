// layer_norm: (x - mean) / sqrt(var + eps) * gamma + beta over the last dim (Ba et al. 2016).
#pragma once

#include "ir/op.h"

namespace ebb::ops {

struct LayerNorm {
  double eps = 1e-5;
  void fields(auto&& f) { f("eps", eps); }
};

namespace def {
const OpDef& layer_norm();
}

// x [...,C], gamma [C] or none, beta [C] or none (not without gamma).
Value layer_norm(Value x, Value gamma, Value beta, const LayerNorm& attrs);

}  // namespace ebb::ops
