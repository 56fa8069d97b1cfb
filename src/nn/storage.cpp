#include "nn/storage.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "nn/weights.h"
#include "ops/prim/permute/op.h"
#include "ops/prim/pointwise/op.h"
#include "ops/prim/reshape/op.h"

namespace ebb::nn {
namespace {

Value as_it_is(Value v) { return v; }
Value widened(Value v) { return ops::cast(v, DType::f32); }

constexpr std::array formats{
    StorageFormat{DType::f32, "32-bit floats", as_it_is},
    StorageFormat{DType::bf16, "the upper halves of 32-bit floats", widened},
    StorageFormat{DType::f16, "IEEE half precision", widened},
};

}  // namespace

const StorageFormat* storage_format(DType dtype) {
  const auto* it = std::find_if(formats.begin(), formats.end(),
                                [&](const StorageFormat& f) { return f.dtype == dtype; });
  return it == formats.end() ? nullptr : &*it;
}

Value decode(const Weight& w, Value stored, bool transposed) {
  if (transposed) stored = ops::permute(stored, {1, 0});
  check_file_shape(w, stored.type());
  const StorageFormat* format = storage_format(stored.dtype());
  require(format != nullptr, w.name, ": no storage format of weights  ", stored.type());
  if (const auto order = file_order(w))
    stored = ops::permute(
        ops::reshape(stored, Shape(std::vector<int64_t>(order->begin(), order->end()))),
        {0, 2, 1, 3});
  return format->widen(ops::reshape(stored, w.shape));
}

}  // namespace ebb::nn
