// mse: mean((a - b)^2) over all elements, f32[].
#pragma once

#include "ir/op.h"

namespace ebb::ops {

namespace def {
const OpDef& mse();
}

Value mse(Value a, Value b);  // equal shapes

}  // namespace ebb::ops
