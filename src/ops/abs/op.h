// abs: |x|; its gradient at 0 is 0.
#pragma once

#include "ir/op.h"

namespace ebb::ops {

namespace def {
const OpDef& abs();
}

Value abs(Value x);

}  // namespace ebb::ops
