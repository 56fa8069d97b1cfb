// reduce_scatter: x [ranks*n,...] to [n,...]: rank r gets part r of the sum over all ranks.
#pragma once

#include "ops/prim/collective.h"

namespace ebb::ops {

namespace def {
const OpDef& reduce_scatter();
}

Value reduce_scatter(Value x, int64_t ranks);

}  // namespace ebb::ops
