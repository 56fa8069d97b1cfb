#include "ops/prim/slices.h"

#include <algorithm>

#include "base/error.h"
#include "ops/prim/slice/op.h"

namespace ebb::ops {

std::optional<size_t> Slices::of(size_t operand) const {
  const auto at = std::ranges::find(operands, static_cast<int64_t>(operand));
  if (at == operands.end()) return {};
  return static_cast<size_t>(at - operands.begin());
}

void Slices::add(size_t operand, int64_t b, int64_t e, int64_t dim) {
  if (dim != -1) dims.values.resize(operands.size(), -1);
  const auto before = std::ranges::lower_bound(operands, static_cast<int64_t>(operand));
  const auto at = before - operands.begin();
  operands.insert(before, static_cast<int64_t>(operand));
  begin.insert(begin.begin() + at, b);
  end.insert(end.begin() + at, e);
  if (dim != -1 || !dims.empty()) dims.values.insert(dims.values.begin() + at, dim);
}

void check_disjoint(const Segments& p, const Slices& c, std::string_view subject) {
  for (const int64_t k : c.operands)
    require(!p.has_in(static_cast<size_t>(k)), subject, ": operand ", k,
            " cannot be both segmented and sliced");
}

std::vector<Type> slice_types(const Slices& c, std::vector<Type> in, std::string_view subject) {
  require(c.begin.size() == c.operands.size() && c.end.size() == c.operands.size(), subject,
          ": slices need a begin and an end each (", c.operands.size(), ", ", c.begin.size(), ", ",
          c.end.size(), ")");
  require(c.dims.empty() || c.dims.values.size() == c.operands.size(), subject,
          ": slices need a dim each (", c.operands.size(), ", ", c.dims.values.size(), ")");
  for (size_t i = 0; i < c.operands.size(); ++i) {
    const int64_t k = c.operands[i];
    require(k >= 0 && k < static_cast<int64_t>(in.size()) && (i == 0 || c.operands[i - 1] < k),
            subject, ": sliced operands must rise within the ", in.size(), " there are (got ", k,
            ")");
    Type& t = in[static_cast<size_t>(k)];
    const int64_t dim = c.dim(i);
    require(dim < 0 && -dim <= t.shape.rank() && 0 <= c.begin[i] && c.begin[i] < c.end[i] &&
                c.end[i] <= t.shape[dim],
            subject, ": [", c.begin[i], ",", c.end[i], ") must lie in dim ", dim, " of operand ", k,
            " (got ", t, ")");
    t.shape[dim] = c.end[i] - c.begin[i];
  }
  return in;
}

std::vector<Value> slice_values(const Slices& c, std::vector<Value> in) {
  for (size_t i = 0; i < c.operands.size(); ++i) {
    Value& v = in[static_cast<size_t>(c.operands[i])];
    v = slice(v, c.dim(i), c.begin[i], c.end[i]);
  }
  return in;
}

}  // namespace ebb::ops
