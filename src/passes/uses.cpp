#include "passes/uses.h"

#include <algorithm>

#include "passes/expression_node.h"

namespace ebb {

bool is_updated(const Graph& g, const Source& s) {
  return std::ranges::find(g.updates(), s.name, &NamedValue::name) != g.updates().end();
}

std::optional<size_t> end_of(const Graph& g, std::string_view name) {
  for (const NamedValue& o : g.outputs())
    if (o.name == name) return static_cast<size_t>(g.producer(o.value) + 1);
  return {};
}

Uses::Uses(const Graph& g) : g_(g), readers_(static_cast<size_t>(g.values())) {
  for (size_t i = 0; i < g.nodes().size(); ++i)
    for (const int32_t v : g.nodes()[i].in) readers_[static_cast<size_t>(v)].insert(i);
  const size_t outside = g.nodes().size();
  for (const NamedValue& o : g.outputs()) readers_[static_cast<size_t>(o.value)].insert(outside);
  for (const NamedValue& u : g.updates()) readers_[static_cast<size_t>(u.value)].insert(outside);
}

const Node* Uses::single_use_producer(int32_t v) const {
  const int32_t n = g_.producer(v);
  if (n < 0 || readers(v).size() != 1) return nullptr;
  return &g_.nodes()[static_cast<size_t>(n)];
}

const Node* Uses::only_reader(int32_t v) const {
  if (readers(v).size() != 1) return nullptr;
  const size_t reader = *readers(v).begin();
  return reader < g_.nodes().size() ? &g_.nodes()[reader] : nullptr;
}

bool Uses::will_fuse(const Node* n, const Shape& shape) const {
  if (n == nullptr) return false;
  const std::optional<ExpressionNode> e = expression_node_of(g_, *n);
  return e && e->space == shape;
}

}  // namespace ebb
