// gelu: x * (1 + erf(x / sqrt 2)) / 2 (Hendrycks and Gimpel 2016).
#pragma once

#include "ir/op.h"

namespace ebb::ops {

namespace def {
const OpDef& gelu();
}

Value gelu(Value x);

}  // namespace ebb::ops
