// attention_grad: the gradients of attention, with the probabilities recomputed from lse.
#pragma once

#include "ir/op.h"
#include "ops/prim/attention/op.h"

namespace ebb::ops {

namespace def {
// q, k, v, o, lse as attention's inputs and outputs, do as o, perhaps dlse as lse
// -> dq, dk, dv, in one where q, k and v are. Attributes are those of the attention.
// Grouped heads of k and v are decomposed on every device: k and v are repeated for each query head
// and dk and dv summed over the group. That moves some 12 bytes per element of k and query head
// (16 bits) beside 10 T operations: a few per cent of the time from a thousand queries on, and
// every kernel stays as it is.
const OpDef& attention_grad();
}  // namespace def

}  // namespace ebb::ops
