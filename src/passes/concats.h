// concats: small tensors are joined by what makes them.
#pragma once

#include <functional>

#include "ir/op.h"

namespace ebb {

// On a fused graph. A concatenation along the last dim, past reshapes that keep that dim,
// - of numbers of channels that one `images` makes is written by it;
// - of the same formula of one tensor each (casts) becomes that formula of the parts;
// where nothing else reads these, and `serves` says that the device has a kernel for it so.
Graph fold_concats(const Graph& g, const std::function<bool(const Signature&)>& serves);

}  // namespace ebb
