// tanh: the hyperbolic tangent.
#pragma once

#include "ir/op.h"

namespace ebb::ops {

namespace def {
const OpDef& tanh();
}

Value tanh(Value x);

}  // namespace ebb::ops
