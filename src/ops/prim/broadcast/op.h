// broadcast: rank 0's operands, on every rank.
#pragma once

#include "ops/prim/collective.h"

namespace ebb::ops {

namespace def {
const OpDef& broadcast();
}

Value broadcast(Value x, int64_t ranks);

}  // namespace ebb::ops
