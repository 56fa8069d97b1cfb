#include "passes/loop_space.h"

#include <algorithm>

namespace ebb {
namespace {

using ops::LoopKind;

std::vector<int64_t> reduced_dims(const LoopSpace& s) {
  const bool rows = s.kind == LoopKind::rows;
  const int64_t rank = s.shape.rank();
  std::vector<int64_t> dims;
  for (int64_t d = rows ? rank - s.row_dims : 1; d < rank - (rows ? 0 : 1); ++d) dims.push_back(d);
  return dims;
}

int64_t length_of(const LoopSpace& rows) {
  int64_t n = 1;
  for (const int64_t d : reduced_dims(rows)) n *= rows.shape[d];
  return n;
}

}  // namespace

bool LoopSpace::reduces(const LoopForm& f) const {
  return !f.dims.empty() && f.space == shape && f.dims == reduced_dims(*this);
}

std::optional<LoopSpace> LoopSpace::from(const Graph& g, const LoopForms& forms, size_t i,
                                         LoopKind kind) {
  constexpr int64_t shortest = 64;  // row worth fusing
  const std::optional<LoopForm>& f = forms[i];
  if (!f || !f->starts || f->space.numel() == 0) return {};
  if (kind == LoopKind::rows) {
    // Rows of several dims are of tokens, [N,T,R...]: else they would be whole images.
    const auto dims = static_cast<int64_t>(f->dims.size());
    const LoopSpace rows{.kind = kind, .shape = f->space, .row_dims = dims};
    return rows.reduces(*f) && (dims == 1 || dims <= f->space.rank() - 2) && f->groups == 0 &&
                   length_of(rows) >= shortest
               ? std::optional(rows)
               : std::nullopt;
  }
  if (f->groups == 0) return {};
  const int32_t sums = f->space_of ? g.producer(g.nodes()[i].in[*f->space_of]) : -1;
  if (f->space_of && sums < 0) return {};
  const std::optional<LoopForm>& reduction = f->space_of ? forms[static_cast<size_t>(sums)] : f;
  if (!reduction || reduction->dims.empty() || reduction->space.rank() < 3 ||
      reduction->space.numel() == 0)
    return {};
  return LoopSpace{kind, reduction->space, f->groups};
}

LoopRole LoopSpace::role_of(const LoopForm& f) const {
  const bool rows = kind == LoopKind::rows, full = f.space == shape;
  if (f.groups != 0 && (rows || f.groups != groups)) return LoopRole::none;
  if (f.dims.empty()) {
    if (full && f.groups == 0) return LoopRole::elements;
    return f.space == scalars() ? LoopRole::scalars : LoopRole::none;
  }
  if (!full) return LoopRole::none;
  if (reduces(f)) return rows || !f.maximum ? LoopRole::reduces : LoopRole::none;
  const auto has = [&](int64_t d) { return std::ranges::find(f.dims, d) != f.dims.end(); };
  return rows && partial_rows() > 0 && f.only_reduces && !f.maximum &&
                 has(shape.rank() - 1 - row_dims) && std::ranges::none_of(reduced_dims(*this), has)
             ? LoopRole::columns
             : LoopRole::none;
}

Shape LoopSpace::scalars() const {
  Shape s = shape;
  for (const int64_t d : reduced_dims(*this)) s[d] = 1;
  return s;
}

bool LoopSpace::streams(const Shape& operand) const {
  return kind == LoopKind::rows ? operand == shape : ops::varies_over_pixels(operand, shape);
}

int64_t LoopSpace::partial_rows() const {
  if (shape.rank() <= row_dims) return 0;
  constexpr int64_t most = 32, fewest = 4, blocks = 256, worth_it = 4096;
  const int64_t last = shape[-1 - row_dims], all = shape.numel() / length_of(*this);
  for (int64_t rows = most; rows >= fewest && all >= worth_it; --rows)
    if (last % rows == 0 && all / rows >= blocks) return rows;
  return 0;
}

}  // namespace ebb
