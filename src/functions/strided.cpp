#include "functions/strided.h"

#include <algorithm>
#include <numeric>

#include "ops/prim/permute/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reshape/op.h"
#include "ops/prim/slice/op.h"

namespace ebb::functions {

std::optional<StorageView> StorageView::of(std::span<const int64_t> sizes,
                                           std::span<const int64_t> strides) {
  StorageView v;
  v.shape = Shape(std::vector<int64_t>(sizes.begin(), sizes.end()));
  v.dim_of.assign(sizes.size(), -1);
  std::vector<size_t> moving;  // dims that take steps in memory, the longest first
  for (size_t d = 0; d < sizes.size(); ++d)
    if (sizes[d] > 1 && strides[d] != 0) moving.push_back(d);
  std::ranges::stable_sort(moving, std::greater{}, [&](size_t d) { return strides[d]; });
  int64_t outer = 0;  // the stride of the dim before
  for (const size_t d : moving) {
    if (strides[d] < 0) return {};
    // The dims inside of the one before make up its stride; the outermost is as long as it is.
    const int64_t size = outer == 0 ? sizes[d] : outer / strides[d];
    if ((outer != 0 && outer % strides[d] != 0) || size < sizes[d]) return {};
    v.dim_of[d] = v.storage.rank();
    v.storage.push_back(size);
    v.kept.push_back(sizes[d]);
    outer = strides[d];
  }
  if (outer > 1) {  // the first of each run
    v.storage.push_back(outer);
    v.kept.push_back(1);
  }
  v.dense = true;
  for (size_t d = 0, at = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 1) continue;
    const bool in_order = v.dim_of[d] == static_cast<int64_t>(at);
    v.dense = v.dense && in_order && v.storage[static_cast<int64_t>(at)] == sizes[d];
    ++at;
  }
  v.dense = v.dense && outer <= 1;
  return v;
}

Value StorageView::input(Graph& g, std::string_view name, DType dtype) const {
  if (dense) return g.input(name, {dtype, shape});
  Value x = g.input(name, {dtype, storage});
  for (int64_t d = 0; d < storage.rank(); ++d)
    x = ops::slice(x, d, 0, kept[static_cast<size_t>(d)]);
  std::vector<int64_t> order;
  Shape present;  // the shape with 1 for dims that repeat
  for (size_t d = 0; d < dim_of.size(); ++d) {
    present.push_back(dim_of[d] < 0 ? 1 : shape[static_cast<int64_t>(d)]);
    if (dim_of[d] >= 0) order.push_back(dim_of[d]);
  }
  if (std::ssize(order) < storage.rank()) order.push_back(storage.rank() - 1);
  return ops::broadcast_to(ops::reshape(ops::permute(x, order), present), shape);
}

}  // namespace ebb::functions
