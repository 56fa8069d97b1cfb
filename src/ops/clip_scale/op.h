// clip_scale: the factor that brings the norm of all gradients together down to max_norm (Pascanu
// et al. 2013).
#pragma once

#include <span>

#include "ir/op.h"

namespace ebb::ops {

struct ClipScale {
  double max_norm = 0;  // 0: no limit
  void fields(auto&& f) { f("max_norm", max_norm); }
};

struct ClipScaleResults {
  Value scale;  // f32[]: min(1, max_norm / (norm + 1e-6)); 0 if the norm is not finite
  Value norm;   // f32[]: sqrt(sum of squares)
};

namespace def {
const OpDef& clip_scale();
}

ClipScaleResults clip_scale(std::span<const Value> gradients, const ClipScale& attrs);

}  // namespace ebb::ops
