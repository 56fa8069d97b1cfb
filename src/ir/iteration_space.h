// IterationSpace: the dims that a kernel walks over, of broadcast tensors, merged where every
// tensor allows it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/shape.h"

namespace ebb {

// `strides`: of each tensor; 0 along a broadcast dim.
struct IterationSpace {
  std::vector<int64_t> sizes;
  std::vector<bool> reduced;                  // by dim
  std::vector<std::vector<int64_t>> strides;  // by tensor, by dim; in elements
  int64_t rank() const { return static_cast<int64_t>(sizes.size()); }
  int64_t numel(int64_t first, int64_t last) const;
};
// The space of `shape`, to which the tensors `in` broadcast; reduced and kept dims do not merge.
// `widths`: by tensor, the row stride in elements of a slice of a wider tensor, or 0; missing
// entries are dense.
IterationSpace make_iteration_space(const Shape& shape, std::span<const Type> in,
                                    const std::vector<bool>& reduced,
                                    std::span<const int64_t> widths = {});

}  // namespace ebb
