// log: the natural logarithm.
#pragma once

#include "ir/op.h"

namespace ebb::ops {

namespace def {
const OpDef& log();
}

Value log(Value x);

}  // namespace ebb::ops
