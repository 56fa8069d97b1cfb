// columns: expressions read some columns of a tensor where they lie.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "ir/op.h"

namespace ebb {

// A value that is columns [begin, end) of the last dim of another.
struct SliceView {
  size_t node = 0;  // that cuts
  int32_t whole = -1;
  int64_t begin = 0, end = 0;
};
// If a slice or split makes `v` so.
std::optional<SliceView> slice_view_of(const Graph& g, int32_t v);

// On a fused graph. A slice (or split) along the last dim of which only expressions read, past
// reshapes that keep that dim, is not made: they read its columns of the whole. Where `supports`
// says that the device has a kernel for each of them so.
Graph elide_slices(const Graph& g, const std::function<bool(const Signature&)>& supports);

}  // namespace ebb
