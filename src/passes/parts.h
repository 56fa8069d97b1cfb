// parts: tensors that are joined or cut along the last dim are read and written in parts.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "ir/op.h"

namespace ebb {

// On a fused graph. A formula's result of which nothing is read but slices that tile its last dim
// is written as these slices. A concatenation that only formulas read is never made, they read its
// parts; one that a formula reads first, and others later, is written by that formula. Where
// `serves` says that the device has a kernel for the formula so.
Graph fold_parts(const Graph& g, const std::function<bool(const Signature&)>& serves);

// Whether parts of these widths are read and written in pieces as wide as the whole would be, or at
// least in pieces of a few elements: a copy is faster than many small accesses.
bool worth_parts(const std::vector<int64_t>& widths);

}  // namespace ebb
