#include "adapters/decomposed.h"

#include <cmath>
#include <numeric>

#include "adapters/adapter_file.h"
#include "nn/ops.h"
#include "ops/sqrt/op.h"
#include "passes/distribute_products.h"

namespace ebb::adapters {
namespace {

// <2 W + d, d> of each row, [out,1,...].
Value growth(Value weight, Value change) {
  Graph& g = *change.graph;
  const Shape& shape = change.shape();
  const auto factors = low_rank_product(g, change.id, shape);
  if (!factors) {
    std::vector<int64_t> rest(static_cast<size_t>(shape.rank() - 1));
    std::iota(rest.begin(), rest.end(), 1);
    return ops::sum_of({weight, change}, rest, [](auto x) { return x[1] * (2.0 * x[0] + x[1]); });
  }
  const Value outer = g.value(factors->outer), inner = g.value(factors->inner);
  const Value by_weight = ops::linear(weight, inner);  // <W, outer inner> = <W inner^T, outer>
  const Value by_change = ops::matmul(outer, ops::linear(inner, inner));
  return ops::sum_of({outer, by_weight, by_change}, {1},
                     [](auto x) { return x[0] * (2.0 * x[1] + x[2]); });
}

}  // namespace

const std::vector<AdapterKind::Role>& magnitude_roles() {
  static const std::vector<AdapterKind::Role> all = {
      {".dora_scale", FileModule::magnitude, FileNames::kohya},
      {".lora_magnitude_vector", FileModule::row_magnitude, FileNames::peft},
      {".lora_magnitude_vector.weight", FileModule::row_magnitude},
      {".lora_magnitude_vector.default.weight", FileModule::row_magnitude}};
  return all;
}

Shape magnitude_shape(const Shape& weight, FileNames names) {
  std::vector<int64_t> sizes(static_cast<size_t>(weight.rank()), 1);
  const bool filter = weight.rank() > 2;
  if (names == FileNames::peft && !filter) sizes.pop_back();
  sizes[names == FileNames::peft && filter ? 1 : 0] = weight[0];
  return Shape(sizes);
}

Value magnitude_scale(Value magnitude, Value length) {
  return ops::map({magnitude, length}, [](auto x) { return x[0] / (x[1] + 0x1p-23); });
}

Value changed_lengths(Value weight, Value change, Value before) {
  // rounding may bring the square below 0 where a change takes a row away
  return ops::map({before, growth(weight, change)},
                  [](auto x) { return sqrt(max(x[0] * x[0] + x[1], 0.0)); });
}

Tensor row_lengths(const Tensor& weight) {
  const int64_t rows = weight.shape()[0], columns = weight.numel() / rows;
  Tensor out(DType::f32, {rows});
  const auto all = weight.span<float>();
  for (int64_t r = 0; r < rows; ++r) {
    double square = 0;
    for (const float v :
         all.subspan(static_cast<size_t>(r * columns), static_cast<size_t>(columns)))
      square += double{v} * double{v};
    out.span<float>()[static_cast<size_t>(r)] = static_cast<float>(std::sqrt(square));
  }
  return out;
}

}  // namespace ebb::adapters
