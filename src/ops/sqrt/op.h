// sqrt: the square root.
#pragma once

#include "ir/op.h"

namespace ebb::ops {

namespace def {
const OpDef& sqrt();
}

Value sqrt(Value x);

}  // namespace ebb::ops
