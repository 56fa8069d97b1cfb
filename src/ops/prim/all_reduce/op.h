// all_reduce: each operand's sum over all ranks, on every rank.
#pragma once

#include "ops/prim/collective.h"

namespace ebb::ops {

namespace def {
const OpDef& all_reduce();
}

Value all_reduce(Value x, int64_t ranks);

}  // namespace ebb::ops
