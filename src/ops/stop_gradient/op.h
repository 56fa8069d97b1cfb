// stop_gradient: x, through which no gradient flows.
#pragma once

#include "ir/op.h"

namespace ebb::ops {

namespace def {
const OpDef& stop_gradient();
}

Value stop_gradient(Value x);

}  // namespace ebb::ops
