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

// A slice in the memory of the tensor that it is of: blocks of `kept` elements, the dim that is
// sliced and those behind it, lie `width` elements apart. 0: the tensor is dense.
struct Pitch {
  int64_t kept = 0, width = 0;
  int64_t stride(int64_t dense) const {
    return kept == 0 || dense < kept ? dense : dense / kept * width;
  }
};

// The space of `shape`, to which the tensors `in` broadcast; reduced and kept dims do not merge.
// `pitches`: by tensor; missing entries are dense.
IterationSpace make_iteration_space(const Shape& shape, std::span<const Type> in,
                                    const std::vector<bool>& reduced,
                                    std::span<const Pitch> pitches = {});

}  // namespace ebb
