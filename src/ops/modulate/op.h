// modulate: x * (1 + scale) + shift with a shift and a scale per sample and channel (Perez et al.
// 2018; Peebles and Xie 2023).
#pragma once

#include "ir/op.h"

namespace ebb::ops {

namespace def {
const OpDef& modulate();
}

// x [N,...,C]; shift, scale [N,C].
Value modulate(Value x, Value shift, Value scale);

}  // namespace ebb::ops
