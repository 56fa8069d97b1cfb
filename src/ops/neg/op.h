// neg: -x.
#pragma once

#include "ir/op.h"

namespace ebb {

namespace ops::def {
const OpDef& neg();
}

Value operator-(Value x);

}  // namespace ebb
