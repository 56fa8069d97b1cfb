// cross_entropy: mean over the rows of log(sum(exp(x))) - x[label], f32[].
#pragma once

#include "ir/op.h"

namespace ebb::ops {

namespace def {
const OpDef& cross_entropy();
}

// logits [N,K], labels i64 [N] in [0, K).
Value cross_entropy(Value logits, Value labels);

}  // namespace ebb::ops
