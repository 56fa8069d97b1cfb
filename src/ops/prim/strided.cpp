#include "ops/prim/strided.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "ops/prim/pad/op.h"
#include "ops/prim/permute/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reshape/op.h"
#include "ops/prim/slice/op.h"

namespace ebb::ops {
namespace {

// The tensor under a shape of which each dim of the view is a range of a dim.
struct Factors {
  Shape storage;
  std::vector<int64_t> begin, size;  // the ranges
  std::vector<int64_t> order;        // for dims that take steps, in order, that of the storage
  Shape present;                     // the view's shape, 1 where it repeats
};

Factors factors(const StridedView& v, int64_t numel) {
  const auto stride = [&](int64_t d) { return v.strides[static_cast<size_t>(d)]; };
  Factors f;
  std::vector<int64_t> moving;  // the longest steps first
  for (int64_t d = 0; d < v.shape.rank(); ++d) {
    f.present.push_back(stride(d) == 0 ? 1 : v.shape[d]);
    if (v.shape[d] > 1 && stride(d) != 0) moving.push_back(d);
  }
  std::ranges::stable_sort(moving, std::greater{}, stride);
  std::vector<int64_t> dim_of(static_cast<size_t>(v.shape.rank()), -1);
  int64_t outer = numel, offset = v.offset;
  const auto add = [&](int64_t step, int64_t size) {
    const int64_t all = step > 0 ? outer / step : 0, begin = step > 0 ? offset / step : 0;
    require(step > 0 && outer % step == 0 && begin + size <= all,
            "strided view: is no range of each dim of any shape of the tensor (strides ",
            Shape(v.strides), ", offset ", v.offset, ", elements ", numel, ")  view: ", v.shape);
    f.storage.push_back(all);
    f.begin.push_back(begin);
    f.size.push_back(size);
    outer = step, offset -= begin * step;
  };
  for (const int64_t d : moving) {
    dim_of[static_cast<size_t>(d)] = f.storage.rank();
    add(stride(d), v.shape[d]);
  }
  if (outer > 1) add(1, 1);
  for (const int64_t d : dim_of)
    if (d >= 0) f.order.push_back(d);
  if (std::ssize(f.order) < f.storage.rank()) f.order.push_back(f.storage.rank() - 1);
  return f;
}

}  // namespace

Value strided(Value tensor, const StridedView& view) {
  if (view == dense_view(tensor.shape())) return tensor;
  const Factors f = factors(view, tensor.shape().numel());
  Value x = reshape(tensor, f.storage);
  for (int64_t d = 0; d < f.storage.rank(); ++d) {
    const auto i = static_cast<size_t>(d);
    x = slice(x, d, f.begin[i], f.begin[i] + f.size[i]);
  }
  return broadcast_to(reshape(permute(x, f.order), f.present), view.shape);
}

Value unstrided(Value x, const StridedView& view, const Shape& shape) {
  const Factors f = factors(view, shape.numel());
  require(f.present == view.shape,
          "strided view: nothing can be written where it repeats  view: ", view.shape);
  Shape moved;
  std::vector<int64_t> back(f.order.size());
  for (size_t i = 0; i < f.order.size(); ++i) {
    moved.push_back(f.size[static_cast<size_t>(f.order[i])]);
    back[static_cast<size_t>(f.order[i])] = static_cast<int64_t>(i);
  }
  Pad zeros{.before = f.begin, .after = {}};
  for (size_t d = 0; d < f.begin.size(); ++d)
    zeros.after.push_back(f.storage[static_cast<int64_t>(d)] - f.begin[d] - f.size[d]);
  return reshape(pad(permute(reshape(x, moved), back), zeros), shape);
}

}  // namespace ebb::ops
