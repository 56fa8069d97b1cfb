// Space: the index space of broadcast tensors, with dims merged where every tensor allows it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/shape.h"

namespace ebb {

// `strides` say how each tensor is read: 0 along a dim in which it repeats.
struct Space {
  std::vector<int64_t> sizes;
  std::vector<bool> reduced;                  // by dim
  std::vector<std::vector<int64_t>> strides;  // by tensor, by dim; in elements
  int64_t rank() const { return static_cast<int64_t>(sizes.size()); }
  int64_t numel(int64_t first, int64_t last) const;
};
// The space of `shape`, which the tensors `in` broadcast to; reduced and kept dims do not merge.
// `widths`: by tensor, elements from row to row in memory where it is columns of a wider one, or 0;
// tensors behind the last of them are dense.
Space make_space(const Shape& shape, std::span<const Type> in, const std::vector<bool>& reduced,
                 std::span<const int64_t> widths = {});

}  // namespace ebb
