#include "passes/copies.h"

#include "ir/copy_form.h"

namespace ebb {
namespace {

const Node* producer(const Graph& g, int32_t v) {
  return g.producer(v) < 0 ? nullptr : &g.nodes()[static_cast<size_t>(g.producer(v))];
}

}  // namespace

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

std::vector<SliceView> slices_of(const Graph& g, size_t node) {
  const Node& n = g.nodes()[node];
  if (n.op->copy == nullptr) return {};
  const CopyForm f = n.op->copy(g.signature(n));
  std::vector<SliceView> out;
  for (size_t k = 0; k < n.out.size(); ++k) {
    const std::vector<CopyForm::Part>& parts = f.results[k];
    if (parts.size() != 1) return {};
    const int32_t base = n.in[parts[0].operand];
    const Shape& whole = g.type(base).shape;
    if (f.dim != whole.rank() - 1 || whole.numel() == 0) return {};
    out.push_back({node, n.out[k], base, parts[0].begin, parts[0].end});
  }
  return out;
}

std::optional<SliceView> slice_of(const Graph& g, int32_t v) {
  const Node* n = producer(g, v);
  if (n == nullptr || n->op->copy == nullptr) return {};
  for (const SliceView& s : slices_of(g, static_cast<size_t>(g.producer(v))))
    if (s.value == v) return s;
  return {};
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
