// softmax: exp(x - max) / sum(exp(x - max)) over the last dim.
#pragma once

#include "ir/op.h"

namespace ebb::ops {

namespace def {
const OpDef& softmax();
}

Value softmax(Value x);

}  // namespace ebb::ops
