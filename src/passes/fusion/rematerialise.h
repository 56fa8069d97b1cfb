// rematerialise: residual sums that the backward pass can recompute from what it reads anyway are
// not kept for it.
#pragma once

#include <functional>
#include <string_view>

#include "ir/op.h"

namespace ebb {

// On a graph after fuse_loops, in which the nodes of the output `loss` come before those of its
// gradients; any other graph is returned as it is.
//
// The gradient of a norm reads the norm's input. Where that is the sum x + f of a residual branch,
// and the gradient node reads f too (for the gradient of a gate), it reads x in place of the sum
// and adds again. It reads no more bytes, and the sum needs no memory if x is kept anyway.
// `supports`: the device has a kernel for the node in its new form.
//
// The bits stay the same: only f32 values are recomputed, and only by operations that every device
// computes exactly (sums, products and the like).
Graph rematerialise(const Graph& g, std::string_view loss,
                    const std::function<bool(const Signature&)>& supports);

}  // namespace ebb
