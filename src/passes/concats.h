// concats: small concatenations are written by the nodes that produce their segments.
#pragma once

#include <functional>

#include "ir/op.h"

namespace ebb {

// On a fused graph. Elides a concatenation along the last dim (looking through reshapes that keep
// that dim) whose segments have no other reader:
// - of per-channel results of one loop: that node writes the concatenation;
// - of the same expression of one tensor each (casts): it becomes that expression of the segments.
// `supports`: the device has a kernel for the node in its new form.
Graph elide_concats(const Graph& g, const std::function<bool(const Signature&)>& supports);

}  // namespace ebb
