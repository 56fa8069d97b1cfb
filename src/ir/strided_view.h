// StridedView: a tensor whose elements lie in another tensor, and how copies that only move
// elements (slices, permutations, other shapes) make one view of another.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "core/shape.h"

namespace ebb {

// Element i is element offset + i . strides of the tensor, which is flat.
struct StridedView {
  int64_t offset = 0;
  Shape shape;
  std::vector<int64_t> strides;  // one a dim, not negative; 0 repeats
  bool operator==(const StridedView&) const = default;
};

StridedView dense_view(const Shape& shape);  // all of a tensor, in order
// Elements of the tensor up to the last one that the view has; 0 if it has none.
int64_t extent(const StridedView& v);

StridedView sliced(StridedView v, int64_t dim, int64_t begin, int64_t end);
StridedView permuted(const StridedView& v, const std::vector<int64_t>& dims);
// Under another shape of as many elements; none where no strides give it.
std::optional<StridedView> reshaped(const StridedView& v, const Shape& shape);

// How a use reads operands and writes results: an operand is a view of the use's input, and what a
// result's view leaves of its tensor, other results of the use write.
struct UseViews {
  std::map<size_t, StridedView> in, out;  // by operand; by result
  std::map<size_t, Shape> tensors;        // of results: the shape of the tensor
  bool one_tensor = false;                // all results lie in the tensor of the first
};

}  // namespace ebb
