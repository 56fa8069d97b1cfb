// cos: the cosine, x in radians.
#pragma once

#include "ir/op.h"

namespace ebb::ops {

namespace def {
const OpDef& cos();
}

Value cos(Value x);

}  // namespace ebb::ops
