// attention_grad: the gradients of attention, with the probabilities recomputed from lse.
#pragma once

#include "ir/op.h"
#include "ops/prim/attention/op.h"

namespace ebb::ops {

namespace def {
// q, k, v, o, lse as attention's inputs and outputs, do as o, perhaps dlse as lse
// -> dq, dk, dv, in one where q, k and v are. Attributes are those of the attention.
const OpDef& attention_grad();
}  // namespace def

}  // namespace ebb::ops
