#include "passes/fusion/loop_space.h"

#include <algorithm>

namespace ebb {
namespace {

using ops::LoopKind;

// Rows of the last dims.
LoopSpace rows_of(const Shape& shape, int64_t row_dims) {
  LoopSpace s{.kind = LoopKind::rows, .shape = shape};
  for (int64_t d = shape.rank() - row_dims; d < shape.rank(); ++d) s.reduction.dims.push_back(d);
  return s;
}

LoopSpace pixels_of(const Shape& shape, int64_t groups) {
  LoopSpace s{.kind = LoopKind::pixels, .shape = shape, .groups = groups};
  for (int64_t d = 1; d + 1 < shape.rank(); ++d) s.reduction.dims.push_back(d);
  return s;
}

Reduction reduction_of(const LoopForm& f) { return {f.dims, f.maximum, f.scale}; }

}  // namespace

bool LoopSpace::reduces(const LoopForm& f) const {
  return !f.dims.empty() && f.space == shape && f.dims == reduction.dims;
}

int64_t LoopSpace::row_length() const {
  int64_t n = 1;
  for (const int64_t d : reduction.dims) n *= shape[d];
  return n;
}

std::optional<LoopSpace> LoopSpace::from(const Graph& g, const LoopForms& forms, size_t i,
                                         LoopKind kind) {
  constexpr int64_t shortest = 64;  // row worth fusing
  const std::optional<LoopForm>& f = forms[i];
  if (!f || f->space.numel() == 0) return {};
  if (kind == LoopKind::map) {
    const LoopSpace map{.kind = kind, .shape = f->space, .reduction = reduction_of(*f)};
    return map.role_of(*f) != LoopRole::none && f->space.numel() > 1 ? std::optional(map)
                                                                     : std::nullopt;
  }
  if (!f->starts) return {};
  if (kind == LoopKind::rows) {
    // Rows of several dims are of tokens, [N,T,R...]: else they would be whole images.
    const auto dims = static_cast<int64_t>(f->dims.size());
    const LoopSpace rows = rows_of(f->space, dims);
    return rows.reduces(*f) && (dims == 1 || dims <= f->space.rank() - 2) && f->groups == 0 &&
                   rows.row_length() >= shortest
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
  return pixels_of(reduction->space, f->groups);
}

LoopRole LoopSpace::role_of(const LoopForm& f) const {
  const bool rows = kind == LoopKind::rows, full = f.space == shape;
  if (kind == LoopKind::map) {
    if (!full || f.groups != 0 || reduction_of(f) != reduction) return LoopRole::none;
    if (f.dims.empty()) return LoopRole::elements;
    return f.only_reduces ? LoopRole::reduces : LoopRole::none;
  }
  if (f.groups != 0 && (rows || f.groups != groups)) return LoopRole::none;
  if (f.dims.empty()) {
    if (full && f.groups == 0) return LoopRole::elements;
    return f.space == scalars() ? LoopRole::scalars : LoopRole::none;
  }
  if (!full) return LoopRole::none;
  if (reduces(f)) return rows || !f.maximum ? LoopRole::reduces : LoopRole::none;
  const auto has = [&](int64_t d) { return std::ranges::find(f.dims, d) != f.dims.end(); };
  return rows && partial_rows() > 0 && f.only_reduces && !f.maximum &&
                 has(shape.rank() - 1 - row_dims()) && std::ranges::none_of(reduction.dims, has)
             ? LoopRole::columns
             : LoopRole::none;
}

Shape LoopSpace::scalars() const {
  Shape s = shape;
  for (const int64_t d : reduction.dims) s[d] = 1;
  return s;
}

bool LoopSpace::streams(const Shape& operand) const {
  return kind == LoopKind::pixels ? ops::varies_over_pixels(operand, shape) : operand == shape;
}

int64_t LoopSpace::partial_rows() const {
  if (shape.rank() <= row_dims()) return 0;
  constexpr int64_t most = 32, fewest = 4, blocks = 256, worth_it = 4096;
  const int64_t last = shape[-1 - row_dims()], all = shape.numel() / row_length();
  for (int64_t rows = most; rows >= fewest && all >= worth_it; --rows)
    if (last % rows == 0 && all / rows >= blocks) return rows;
  return 0;
}

}  // namespace ebb
