// square: x * x.
#pragma once

#include "ir/op.h"

namespace ebb::ops {

namespace def {
const OpDef& square();
}

Value square(Value x);

}  // namespace ebb::ops
