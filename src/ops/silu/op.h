// silu: x * sigmoid(x) (Hendrycks and Gimpel 2016; Ramachandran et al. 2017).
#pragma once

#include "ir/op.h"

namespace ebb::ops {

namespace def {
const OpDef& silu();
}

Value silu(Value x);

}  // namespace ebb::ops
