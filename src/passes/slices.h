// slices: slices along the last dim become strided views, read in place.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "ir/op.h"

namespace ebb {

// A value that is the slice [begin, end) of the last dim of `base`.
struct SliceView {
  size_t node = 0;  // the slice or split
  int32_t base = -1;
  int64_t begin = 0, end = 0;
};
// None if `v` is no such slice.
std::optional<SliceView> slice_view_of(const Graph& g, int32_t v);

// The value whose memory `v` is, looking through reshapes.
int32_t root_of(const Graph& g, int32_t v);

// On a fused graph. Elides a slice (or split) along the last dim that only pointwise nodes and
// fusions read, looking through reshapes that keep that dim: they read strided views of its input.
// `supports`: the device has a kernel for each reader in its new form.
Graph elide_slices(const Graph& g, const std::function<bool(const Signature&)>& supports);

}  // namespace ebb
