// sub: a - b, broadcasting. A number becomes part of the expression.
#pragma once

#include "ir/op.h"

namespace ebb {

namespace ops::def {
const OpDef& sub();
}

Value operator-(Value a, Value b);
Value operator-(Value a, double b);
Value operator-(double a, Value b);

}  // namespace ebb
