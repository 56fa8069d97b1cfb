#include "adapters/kind.h"
#include "base/error.h"
#include "base/names.h"
#include "nn/ops.h"

#define X(name)                             \
  namespace ebb::adapters::kinds {          \
  const ebb::adapters::AdapterKind& name(); \
  }
#include "ebb/gen/adapter_kinds.inc"
#undef X

namespace ebb::adapters {

const std::vector<const AdapterKind*>& all_kinds() {
  static const std::vector<const AdapterKind*> all = {
#define X(name) &kinds::name(),
#include "ebb/gen/adapter_kinds.inc"
#undef X
  };
  return all;
}

std::vector<std::string> file_names() { return {"kohya", "peft"}; }

FileNames parse_file_names(const std::string& name) {
  const size_t at = find_name(name, file_names());
  if (at == file_names().size()) fail_unknown("names: unknown value", name, file_names());
  return at == 0 ? FileNames::kohya : FileNames::peft;
}

WeightSize weight_size(const Shape& s) {
  WeightSize out;
  if (s.rank() > 0) out.out = s[0];
  if (s.rank() > 1) out.in = s[1];
  for (int64_t i = 2; i < s.rank(); ++i) out.taps *= s[i];
  return out;
}

// ---- modules -------------------------------------------------------------------------------

bool Module::add(const std::string& role, ModuleTensor tensor) {
  return tensors_.emplace(role, std::move(tensor)).second;
}

const Shape& Module::shape(std::string_view role) const {
  const auto it = tensors_.find(role);
  require(it != tensors_.end(), "adapter: '", stem_, "' lacks its tensor ", role, "  ", file_);
  return it->second.shape;
}

int64_t Module::size(std::string_view role, int64_t dim) const {
  const Shape& s = shape(role);
  return dim < s.rank() ? s[dim] : 1;
}

int64_t Module::columns(std::string_view role) const {
  const Shape& s = shape(role);
  return s.rank() > 0 && s[0] > 0 ? s.numel() / s[0] : 0;
}

void Module::fail_shape(std::string_view role, const std::string& rule, const WeightSize& w) const {
  const Shape& s = shape(role);
  fail("adapter: '", tensors_.find(role)->second.name, "' must have ", rule, " (it is ", s,
       ", for a weight of ", w.out, " outputs, ", w.in, " inputs, ", w.taps,
       w.taps == 1 ? " tap)  " : " taps)  ", file_);
}

void Module::expect(std::string_view role, int64_t rows, int64_t cols, const WeightSize& w) const {
  if (size(role, 0) != rows || columns(role) != cols)
    fail_shape(role, str(rows, " rows of ", cols, " numbers"), w);
}

void Module::expect_numel(std::string_view role, int64_t numel, const WeightSize& w) const {
  if (shape(role).numel() != numel) fail_shape(role, str(numel, " numbers"), w);
}

// ---- formulas that kinds share -------------------------------------------------------------

Value transposed(Value a, int64_t rows, int64_t cols) {
  return ops::permute(ops::reshape(a, {rows, cols}), {1, 0});
}

Value product(Value a, Value b, int64_t m, int64_t k, int64_t n) {
  return ops::matmul(ops::reshape(a, {m, k}), ops::reshape(b, {k, n}));
}

Value tucker(Value outer, Value mid, Value inner, const WeightSize& w) {
  const int64_t i = outer.shape().numel() / w.out, j = inner.shape().numel() / w.in;
  const Value rows = ops::reshape(product(outer, mid, w.out, i, j * w.taps), {w.out, j, w.taps});
  const Value all = product(ops::permute(rows, {0, 2, 1}), inner, w.out * w.taps, j, w.in);
  return ops::permute(ops::reshape(all, {w.out, w.taps, w.in}), {0, 2, 1});
}

}  // namespace ebb::adapters
