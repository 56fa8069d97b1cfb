// exp: e^x.
#pragma once

#include "ir/op.h"

namespace ebb::ops {

namespace def {
const OpDef& exp();
}

Value exp(Value x);

}  // namespace ebb::ops
