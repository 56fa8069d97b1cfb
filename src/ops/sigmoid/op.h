// sigmoid: 1 / (1 + exp(-x)).
#pragma once

#include "ir/op.h"

namespace ebb::ops {

namespace def {
const OpDef& sigmoid();
}

Value sigmoid(Value x);

}  // namespace ebb::ops
