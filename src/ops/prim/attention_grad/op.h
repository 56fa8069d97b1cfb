// attention_grad: the gradients of attention, with the probabilities recomputed from lse.
#pragma once

#include "ir/op.h"
#include "ops/prim/attention/op.h"

namespace ebb::ops {

namespace def {
// q, k, v, o, lse as attention's inputs and outputs, do as o, perhaps dlse as lse
// -> dq, dk, dv, in one where q, k and v are. Attributes are those of the attention.
// Kernels without grouped heads of k and v get them decomposed: k and v repeated for each query
// head, dk and dv summed over the group.
const OpDef& attention_grad();
}  // namespace def

// attention_sizes of the gradient, with where o, do, dq, dk and dv lie.
AttentionSizes attention_grad_sizes(const Signature& s);

}  // namespace ebb::ops
