// columns: formulas read some columns of a tensor where they lie.
#pragma once

#include <functional>

#include "ir/op.h"

namespace ebb {

// On a fused graph. A slice (or split) along the last dim of which only formulas read, past
// reshapes that keep that dim, is not made: they read its columns of the whole. Where `serves` says
// that the device has a kernel for each of them so.
Graph fold_columns(const Graph& g, const std::function<bool(const Signature&)>& serves);

}  // namespace ebb
