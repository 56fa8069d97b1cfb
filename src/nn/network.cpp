#include "nn/network.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace ebb::nn {
namespace {

// Elements as doubles; host tensors.
template <class F>
void each_element(const Tensor& t, const F& f) {
  if (t.dtype() == DType::i64) {
    for (const int64_t v : t.span<int64_t>()) f(static_cast<double>(v));
  } else {
    const Tensor wide = t.dtype() == DType::f32 ? t : t.to(DType::f32);
    for (const float v : wide.span<float>()) f(static_cast<double>(v));
  }
}

// "f32[2,any,768]"
std::string text_of(const Condition& c, int64_t batch) {
  std::string sizes = std::to_string(batch);
  for (const int64_t n : c.shape) sizes += "," + (n < 0 ? "any" : std::to_string(n));
  return str(c.dtype, "[", sizes, "]");
}

bool fits(const Condition& c, const Shape& value, int64_t batch) {
  const int64_t rank = c.shape.rank();
  if (value.rank() != rank + 1 || value[0] != batch) return false;
  for (int64_t i = 0; i < rank; ++i)
    if (c.shape[i] >= 0 && c.shape[i] != value[i + 1]) return false;
  return true;
}

}  // namespace

Type Condition::type(int64_t batch) const {
  Shape s{batch};
  for (const int64_t n : shape) {
    require(n >= 0, "condition: the sizes of '", name, "' are not known (", text_of(*this, batch),
            ")");
    s.push_back(n);
  }
  return {dtype, s};
}

Type Condition::usual_type(int64_t batch) const {
  Condition sized = *this;
  if (usual.rank() > 0) sized.shape = usual;
  return sized.type(batch);
}

Tensor Condition::nulls(int64_t batch) const {
  Tensor wide(DType::f32, type(batch).shape);
  std::ranges::fill(wide.span<float>(), static_cast<float>(null));
  return dtype == DType::f32 ? wide : wide.to(dtype);
}

void Condition::check_shape(const Shape& value, int64_t batch, std::string_view subject) const {
  require(fits(*this, value, batch), subject, ": ", name, " must be ", text_of(*this, batch),
          "  got ", value);
}

void Condition::check(const Tensor& value, int64_t batch, std::string_view subject) const {
  require(value.defined() && value.dtype() == dtype && fits(*this, value.shape(), batch), subject,
          ": ", name, " must be ", text_of(*this, batch), "  got ",
          value.defined() ? str(value.type()) : "nothing");
  each_element(value, [&](double v) {
    require(std::isfinite(v), subject, ": ", name, " must be finite (", v, ")");
    require(ids == 0 || v == null || (v >= 0 && v < static_cast<double>(ids)), subject, ": ", name,
            " must lie in [0, ", ids, ") or be ", null, " (", v, ")");
  });
}

Condition Condition::sized_as(const Tensor& value) const {
  Condition out = *this;
  out.shape = value.shape().slice(1, value.shape().rank());
  return out;
}

Condition class_condition(int64_t classes) {
  return {.name = std::string(class_id), .dtype = DType::i64, .null = -1, .ids = classes};
}

Condition augment_condition(int64_t labels) {
  return {.name = std::string(augment_labels), .shape = {labels}, .guided = false};
}

Value NetworkInputs::condition(std::string_view name) const {
  const auto it = conditions.find(name);
  return it == conditions.end() ? Value{} : it->second;
}

}  // namespace ebb::nn
