// segments: concatenations and slices along the last dim become views, read and written in place.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "ir/op.h"

namespace ebb {

// On a fused graph; `supports` says that the device has a kernel for a node in its new form.
// - A pointwise result that only slices tiling its last dim read is written as those slices.
// - A concatenation that only pointwise nodes read is never made: they read its segments.
// - A concatenation that a pointwise node reads first, and others later, is written by that node.
Graph elide_concat_slice(const Graph& g, const std::function<bool(const Signature&)>& supports);

// Whether segments of these widths allow vector accesses as wide as the full tensor would, or at
// least of a few elements: a copy is faster than many narrow accesses.
bool worth_segments(const std::vector<int64_t>& widths);

}  // namespace ebb
