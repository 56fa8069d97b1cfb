#include "passes/views/viewed_graph.h"

#include <algorithm>

namespace ebb {

ViewedGraph::ViewedGraph(const Graph& g) : g_(g) {
  for (const NamedValue& o : g.outputs()) kept_.insert(o.value);
  for (const NamedValue& u : g.updates()) kept_.insert(u.value);
}

std::optional<LoopNode> ViewedGraph::loop(size_t i) const {
  if (is_elided(i)) return {};
  const auto at = loops_.find(i);
  return at == loops_.end() ? loop_node_of(g_, node(i)) : at->second;
}

std::optional<std::pair<size_t, size_t>> ViewedGraph::writer(int32_t v) const {
  const auto at = writer_.find(v);
  if (at == writer_.end() && g_.producer(v) < 0) return {};
  const size_t i = at == writer_.end() ? static_cast<size_t>(g_.producer(v)) : at->second;
  const auto l = loops_.find(i);
  const auto& out = l == loops_.end() ? node(i).out : l->second.out;
  return std::pair{i, static_cast<size_t>(std::ranges::find(out, v) - out.begin())};
}

std::vector<int32_t> ViewedGraph::reads(size_t i) const {
  if (is_elided(i)) return {};
  const auto at = loops_.find(i);
  if (at == loops_.end()) return node(i).in;
  std::vector<int32_t> in;
  for (const LoopNode::Input& x : at->second.in) in.push_back(x.value);
  return in;
}

void ViewedGraph::elide_unread() {
  std::set<int32_t> read = kept_;
  for (size_t i = size(); i-- > 0;) {
    const auto l = loops_.find(i);
    const auto& out = l == loops_.end() ? node(i).out : l->second.out;
    if (std::ranges::none_of(out, [&](int32_t v) { return read.contains(v); })) elide(i);
    for (const int32_t v : reads(i)) read.insert(v);
  }
}

void ViewedGraph::replace(size_t i, LoopNode l) {
  for (const int32_t v : l.out) writer_[v] = i;
  loops_.insert_or_assign(i, std::move(l));
}

void ViewedGraph::replace(size_t i, Node n) {
  for (const int32_t v : n.out) writer_[v] = i;
  nodes_.insert_or_assign(i, std::move(n));
}

Graph ViewedGraph::rebuilt() const {
  if (loops_.empty() && nodes_.empty()) return g_;
  Rewriter rw(g_);
  rw.copy_sources();
  for (size_t i = 0; i < size(); ++i) {
    if (is_elided(i)) continue;
    if (const auto at = loops_.find(i); at != loops_.end())
      add_loop(at->second, rw);
    else
      rw.copy(node(i));
  }
  rw.copy_ends();
  return rw.take();
}

}  // namespace ebb
