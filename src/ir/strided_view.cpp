#include "ir/strided_view.h"

namespace ebb {

StridedView dense_view(const Shape& shape) { return {0, shape, shape.strides()}; }

int64_t extent(const StridedView& v) {
  if (v.shape.numel() == 0) return 0;
  int64_t last = v.offset;
  for (int64_t d = 0; d < v.shape.rank(); ++d)
    last += (v.shape[d] - 1) * v.strides[static_cast<size_t>(d)];
  return last + 1;
}

StridedView sliced(StridedView v, int64_t dim, int64_t begin, int64_t end) {
  v.offset += begin * v.strides[static_cast<size_t>(dim)];
  v.shape[dim] = end - begin;
  return v;
}

StridedView permuted(const StridedView& v, const std::vector<int64_t>& dims) {
  StridedView out{.offset = v.offset, .shape = {}, .strides = {}};
  for (const int64_t d : dims) {
    out.shape.push_back(v.shape[d]);
    out.strides.push_back(v.strides[static_cast<size_t>(d)]);
  }
  return out;
}

std::optional<StridedView> reshaped(const StridedView& v, const Shape& shape) {
  if (v.shape.numel() != shape.numel() || shape.numel() == 0) return {};
  std::vector<int64_t> sizes, steps;  // of dims longer than 1
  for (int64_t d = 0; d < v.shape.rank(); ++d) {
    if (v.shape[d] == 1) continue;
    sizes.push_back(v.shape[d]);
    steps.push_back(v.strides[static_cast<size_t>(d)]);
  }
  StridedView out{v.offset, shape, std::vector<int64_t>(static_cast<size_t>(shape.rank()), 1)};
  size_t last = sizes.size();  // dims of the view before it have no new ones yet
  int64_t next = shape.rank();
  while (last > 0) {
    // A run of dims that together take equal steps.
    int64_t count = sizes[--last], taken = 1;
    const int64_t step = steps[last];
    while (last > 0 && steps[last - 1] == step * count) count *= sizes[--last];
    while (next > 0 && (taken < count || shape[next - 1] == 1)) {
      out.strides[static_cast<size_t>(--next)] = taken * step;
      taken *= shape[next];
    }
    if (taken != count) return {};
  }
  return out;
}

}  // namespace ebb
