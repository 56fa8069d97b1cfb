// embedding: rows of a table, y[i,:] = table[ids[i],:].
#pragma once

#include "ir/op.h"

namespace ebb::ops {

namespace def {
const OpDef& embedding();
}

// table [rows,d], ids i64[...] in [0, rows) -> [...,d]. An id out of range is an Error at run time.
Value embedding(Value table, Value ids);

}  // namespace ebb::ops
