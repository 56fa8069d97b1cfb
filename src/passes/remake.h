// remake: sums that the backward pass can make of what it reads anyway are not kept for it.
#pragma once

#include <functional>
#include <string_view>

#include "ir/op.h"

namespace ebb {

// On a graph after join_rows, in which the computation of the output `loss` comes before that of
// its gradients; another graph stays as it is. The gradient of a norm reads the norm's rows. Where
// these are a sum x + f of a residual branch, and the gradient's `rows` node reads f too (for the
// gradient of a gate), it reads x in place of the sum, and adds again: no more is read, and the sum
// is not kept if x is anyway. `serves` says that the device has a kernel for the node so.
// The same bits: only values that are written in f32 are made again, and only by sums, products
// and what else every device computes exactly.
Graph remake(const Graph& g, std::string_view loss,
             const std::function<bool(const Signature&)>& serves);

}  // namespace ebb
