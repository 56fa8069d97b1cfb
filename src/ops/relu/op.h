// relu: max(x, 0); its gradient at 0 is 0.
#pragma once

#include "ir/op.h"

namespace ebb::ops {

namespace def {
const OpDef& relu();
}

Value relu(Value x);

}  // namespace ebb::ops
