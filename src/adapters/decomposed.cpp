#include "adapters/decomposed.h"

#include <cmath>
#include <numeric>

#include "adapters/adapter_file.h"
#include "nn/ops.h"
#include "ops/sqrt/op.h"
#include "passes/contractions/distribute_products.h"

namespace ebb::adapters {
namespace {

// <2 W + d, d> of each row, [out,1], for d = outer inner.
Value growth(Value weight, const LowRankProduct& change) {
  Graph& g = *weight.graph;
  const Value outer = g.value(change.outer), inner = g.value(change.inner);
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

Value lengths(Value v, const std::vector<int64_t>& over) {
  return ops::sqrt(ops::sum_of({v}, over, [](auto x) { return x[0] * x[0]; }));
}

Value changed_lengths(Value weight, Value change, Value before) {
  const auto factors = low_rank_product(*change.graph, change.id, change.shape());
  if (!factors) {
    std::vector<int64_t> rest(static_cast<size_t>(change.shape().rank() - 1));
    std::iota(rest.begin(), rest.end(), 1);
    return lengths(weight + change, rest);
  }
  constexpr double least = 0x1p-10;  // of the squares
  return ops::map({before, growth(weight, *factors)}, [](auto x) {
    const auto square = x[0] * x[0];
    return sqrt(max(square + x[1], least * square));
  });
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
