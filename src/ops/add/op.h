// add: a + b, broadcasting.
#pragma once

#include "ir/op.h"

namespace ebb {

namespace ops::def {
const OpDef& add();
}

Value operator+(Value a, Value b);

}  // namespace ebb
