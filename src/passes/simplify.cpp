#include "passes/simplify.h"

#include <map>

#include "ir/op.h"

namespace ebb {

Graph dead_code(const Graph& g) {
  std::vector<bool> live(static_cast<size_t>(g.values()));
  for (const NamedValue& o : g.outputs()) live[static_cast<size_t>(o.value)] = true;
  for (const NamedValue& u : g.updates()) live[static_cast<size_t>(u.value)] = true;
  const auto wanted = [&](const Node& n) {
    for (const int32_t v : n.out)
      if (live[static_cast<size_t>(v)]) return true;
    return false;
  };
  for (size_t i = g.nodes().size(); i-- > 0;) {
    const Node& n = g.nodes()[i];
    if (!wanted(n)) continue;
    for (const int32_t v : n.in) live[static_cast<size_t>(v)] = true;
  }
  Rewriter rw(g);
  rw.copy_sources();
  for (const Node& n : g.nodes())
    if (wanted(n)) rw.copy(n);
  rw.copy_ends();
  return rw.take();
}

Graph common_subexpressions(const Graph& g) {
  Rewriter rw(g);
  rw.copy_sources();
  std::map<std::string, std::vector<Value>> seen;
  for (const Node& n : g.nodes()) {
    std::string key = std::string(n.op->name) + n.attrs.text();
    for (const Value& v : rw.map(n.in)) key += " %" + std::to_string(v.id);
    const auto it = seen.find(key);
    if (it == seen.end()) {
      rw.copy(n);
      seen[key] = rw.map(n.out);
      continue;
    }
    for (size_t i = 0; i < n.out.size(); ++i) rw.set(n.out[i], it->second[i]);
  }
  rw.copy_ends();
  return rw.take();
}

}  // namespace ebb
