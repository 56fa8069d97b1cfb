#include "passes/schedule/graph_cut.h"

#include <algorithm>

namespace ebb {

GraphCut::GraphCut(const Graph& g, const std::function<bool(int32_t)>& early)
    : in_step_(static_cast<size_t>(g.values())), crosses_(in_step_.size()) {
  const auto need = [&](int32_t v) {
    (early(v) ? crosses_ : in_step_)[static_cast<size_t>(v)] = true;
  };
  for (const NamedValue& o : g.outputs()) need(o.value);
  for (const NamedValue& u : g.updates()) need(u.value);
  for (size_t i = g.nodes().size(); i-- > 0;)
    if (in_step(g.nodes()[i])) std::ranges::for_each(g.nodes()[i].in, need);
}

bool GraphCut::in_step(const Node& n) const {
  return std::ranges::any_of(n.out, [&](int32_t v) { return in_step(v); });
}

std::vector<bool> with_operands_of(const Graph& g, std::vector<bool> values) {
  for (size_t i = g.nodes().size(); i-- > 0;) {
    const Node& n = g.nodes()[i];
    if (std::ranges::any_of(n.out, [&](int32_t v) { return values[static_cast<size_t>(v)]; }))
      for (const int32_t v : n.in) values[static_cast<size_t>(v)] = true;
  }
  return values;
}

}  // namespace ebb
