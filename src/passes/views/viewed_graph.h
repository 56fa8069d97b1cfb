// ViewedGraph: a graph of which copies become views. Passes of views note in it which nodes are
// elided and which loops take the place of others; it is made anew once, at the end.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "passes/views/loop_node.h"

namespace ebb {

// Whether the device has a kernel for a node in its new form.
using Supports = std::function<bool(const Signature&)>;

class ViewedGraph {
 public:
  explicit ViewedGraph(const Graph& g);

  const Graph& graph() const { return g_; }
  size_t size() const { return g_.nodes().size(); }
  const Node& node(size_t i) const {  // as it is now, unless it became a loop
    const auto at = nodes_.find(i);
    return at == nodes_.end() ? g_.nodes()[i] : at->second;
  }
  const Shape& shape(int32_t v) const { return g_.type(v).shape; }
  bool is_kept(int32_t v) const { return kept_.contains(v); }  // an output or update
  bool is_elided(size_t i) const { return elided_.contains(i); }

  // Node `i` as a loop, as it is now; none of nodes that are none.
  std::optional<LoopNode> loop(size_t i) const;
  // The node that writes a value, and which of its outputs that is; none of a source.
  std::optional<std::pair<size_t, size_t>> writer(int32_t v) const;
  // What node `i` reads; nothing if it is elided.
  std::vector<int32_t> reads(size_t i) const;

  void elide(size_t i) { elided_.insert(i); }
  void elide_unread();  // all nodes whose results nothing reads
  void replace(size_t i, LoopNode l);
  void replace(size_t i, Node n);  // the same op, with other attributes and values

  Graph rebuilt() const;

 private:
  const Graph& g_;
  std::set<int32_t> kept_;
  std::set<size_t> elided_;
  std::map<size_t, LoopNode> loops_;  // by the node whose place they take
  std::map<size_t, Node> nodes_;      // the same of other nodes
  std::map<int32_t, size_t> writer_;  // of values that these write
};

}  // namespace ebb
