// shortcuts: a convolution and the matmul of its residual block's shortcut become one sum.
#pragma once

#include <functional>

#include "ir/op.h"

namespace ebb {

// On a lowered graph whose weights are prepared (passes/prepare.h). Where a convolution and a
// matmul with prepared weights are added up and nothing else reads either (a residual block whose
// shortcut is a 1x1 convolution), they become a conv2d_shortcut: what the matmul gives is neither
// written nor read. A matmul of two concatenated tensors reads them as they are. Biases are added
// up once. `supports(conv, both)`: on the device they are in one cost class.
Graph merge_shortcuts(const Graph& g, const std::function<bool(const Source&)>& is_weight,
                      const std::function<bool(const Signature&, const Signature&)>& supports);

}  // namespace ebb
