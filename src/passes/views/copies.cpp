#include "passes/views/copies.h"

#include <algorithm>

#include "ir/copy_form.h"

namespace ebb {

const Node* producer(const Graph& g, int32_t v) {
  return g.producer(v) < 0 ? nullptr : &g.nodes()[static_cast<size_t>(g.producer(v))];
}

bool keeps_rows(const Graph& g, const Node& n) {
  if (!n.op->renames) return false;
  const Shape &from = g.type(n.in[0]).shape, &to = g.type(n.out[0]).shape;
  return from.rank() > 0 && to.rank() > 0 && from[-1] == to[-1];
}

int32_t root_of(const Graph& g, int32_t v) {
  for (const Node* n = producer(g, v); n != nullptr && n->op->renames; n = producer(g, v))
    v = n->in[0];
  return v;
}
int32_t row_root_of(const Graph& g, int32_t v) {
  for (const Node* n = producer(g, v); n != nullptr && keeps_rows(g, *n); n = producer(g, v))
    v = n->in[0];
  return v;
}

std::optional<SliceView> slice_of(const Graph& g, int32_t v) {
  const Node* n = producer(g, v);
  if (n == nullptr || n->op->copy == nullptr) return {};
  const CopyForm f = n->op->copy(g.signature(*n));
  const auto& parts = f.results[static_cast<size_t>(std::ranges::find(n->out, v) - n->out.begin())];
  if (parts.size() != 1) return {};
  const CopyForm::Part& p = parts[0];
  return SliceView{static_cast<size_t>(g.producer(v)), v, n->in[p.operand], f.dim, p.begin, p.end};
}
bool is_range(const Graph& g, const SliceView& view) {
  const Shape& whole = g.type(view.base).shape;
  return view.dim + 1 < whole.rank() && whole.slice(0, view.dim).numel() == 1;
}
std::optional<SliceView> columns_of(const Graph& g, int32_t v) {
  const std::optional<SliceView> s = slice_of(g, v);
  if (!s) return {};
  const Shape& whole = g.type(s->base).shape;
  return s->dim == whole.rank() - 1 && whole.numel() > 0 ? s : std::nullopt;
}
std::vector<SliceView> columns_of_results(const Graph& g, size_t node) {
  std::vector<SliceView> all;
  for (const int32_t v : g.nodes()[node].out) {
    const std::optional<SliceView> s = columns_of(g, v);
    if (!s) return {};
    all.push_back(*s);
  }
  return all;
}

std::vector<int32_t> concatenated(const Graph& g, const Node& n, int64_t dim) {
  if (n.op->copy == nullptr || n.out.size() != 1) return {};
  const CopyForm f = n.op->copy(g.signature(n));
  if (f.dim != (dim < 0 ? dim + g.type(n.out[0]).shape.rank() : dim)) return {};
  std::vector<int32_t> out;
  for (const CopyForm::Part& p : f.results[0]) {
    out.push_back(n.in[p.operand]);
    if (p.begin != 0 || p.end != g.type(out.back()).shape[f.dim]) return {};
  }
  return out.size() > 1 ? out : std::vector<int32_t>{};
}

}  // namespace ebb
