// max_pool_grad: every result's gradient goes to the first maximum of its window, rows first.
#pragma once

#include "ir/op.h"
#include "ops/prim/max_pool/op.h"

namespace ebb::ops {

namespace def {
const OpDef& max_pool_grad();
}

// x [N,H,W,C], dy [N,P,Q,C] -> dx as x. Attributes are those of the max_pool.
Value max_pool_grad(Value x, Value dy, const MaxPool& attrs);

}  // namespace ebb::ops
