// all_gather: x [n,...] to [ranks*n,...]: part r is rank r's x. Its gradient sums over all ranks,
// so a loss of parameters that are gathered is the sum of the ranks' losses.
#pragma once

#include "ops/prim/collective.h"

namespace ebb::ops {

namespace def {
const OpDef& all_gather();
}

Value all_gather(Value x, int64_t ranks);

}  // namespace ebb::ops
