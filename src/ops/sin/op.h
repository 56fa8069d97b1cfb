// sin: the sine, x in radians.
#pragma once

#include "ir/op.h"

namespace ebb::ops {

namespace def {
const OpDef& sin();
}

Value sin(Value x);

}  // namespace ebb::ops
