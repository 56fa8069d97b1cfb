#include "passes/horizontal_fusion.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "ops/multi_tensor_pointwise/op.h"
#include "passes/expression_node.h"

namespace ebb {
namespace {

constexpr int64_t most_elements = int64_t{1} << 24;
// Of uses that OpDef::together joins: few that stand close to each other, so that no result lives
// for longer than that.
constexpr int64_t most_joined_elements = int64_t{1} << 29;
constexpr size_t most_joined = 8, joined_within = 16;

using Supports = std::function<bool(const Signature&)>;

class HorizontalFuser {
 public:
  HorizontalFuser(Graph g, const Supports& supports)
      : g_(std::move(g)), supports_(supports), made_at_(static_cast<size_t>(g_.values()), -1) {}

  Graph run() {
    collect();
    Rewriter rw(g_);
    rw.copy_sources();
    for (size_t i = 0; i < g_.nodes().size(); ++i) {
      const auto group = groups_.find(i);
      if (group == groups_.end() || group->second.size() == 1)
        rw.copy(g_.nodes()[i]);
      else if (!group->second.empty())
        add_fused(rw, group->second);
    }
    rw.copy_ends();
    return rw.take();
  }

 private:
  // Nodes with the same key may fuse; "" for a node that does not fuse.
  std::string key_of(const Node& n) const {
    return n.op->together ? key_of_joined(n) : key_of_elementwise(n);
  }
  std::string key_of_joined(const Node& n) const {
    if (!supports_ || elements_of(n) > most_joined_elements) return "";
    std::string key = n.op->together->key(g_.signature(n));
    if (key.empty()) return key;
    key += str(' ', n.op->name);
    for (const auto* values : {&n.in, &n.out})
      for (const int32_t v : *values) key += str(' ', g_.type(v).dtype);
    return key;
  }
  // Of its largest operand or result.
  int64_t elements_of(const Node& n) const {
    int64_t most = 0;
    for (const auto* values : {&n.in, &n.out})
      for (const int32_t v : *values) most = std::max(most, g_.type(v).shape.numel());
    return most;
  }
  // Whether one launch can compute them all.
  bool fit_together(const std::vector<size_t>& members, size_t more) const {
    const Together* how = g_.nodes()[more].op->together;
    if (how == nullptr) return true;
    if (members.size() == most_joined || more - members[0] > joined_within) return false;
    std::vector<size_t> all = members;
    all.push_back(more);
    int64_t elements = 0;
    for (const size_t m : all) elements += elements_of(g_.nodes()[m]);
    return elements <= most_joined_elements && supports_(joined(*how, all));
  }
  Signature joined(const Together& how, const std::vector<size_t>& members) const {
    std::vector<Signature> uses;
    for (const size_t m : members) uses.push_back(g_.signature(g_.nodes()[m]));
    return how.join(uses);
  }
  std::string key_of_elementwise(const Node& n) const {
    if (!is_elementwise(n) || n.in.empty()) return "";
    const Shape& shape = g_.type(n.out[0]).shape;
    if (shape.numel() > most_elements) return "";
    std::string key = expression_of(g_, n).text();
    bool full = false;
    for (const int32_t v : n.in) {
      const Type& t = g_.type(v);
      if (!(t.shape == shape) && t.shape.numel() != 1) return "";
      const bool number = t.shape.numel() == 1;
      full = full || t.shape == shape;
      key += str(' ', t.dtype, number ? "1" : "");
    }
    for (const int32_t v : n.out) key += str(' ', g_.type(v).dtype);
    return full ? key : "";
  }

  // A node joins an earlier group if its inputs exist by then.
  void collect() {
    std::map<std::string, std::vector<size_t>, std::less<>> by_key;  // first members
    for (size_t i = 0; i < g_.nodes().size(); ++i) {
      const Node& n = g_.nodes()[i];
      size_t home = i;
      if (const std::string key = key_of(n); !key.empty()) {
        int64_t ready = -1;
        for (const int32_t v : n.in) ready = std::max(ready, made_at_[static_cast<size_t>(v)]);
        auto& firsts = by_key[key];
        const auto at = std::find_if(firsts.begin(), firsts.end(), [&](size_t f) {
          return static_cast<int64_t>(f) > ready && fit_together(groups_[f], i);
        });
        if (at != firsts.end())
          home = *at;
        else
          firsts.push_back(i);
        groups_[home].push_back(i);
        if (home != i) groups_[i] = {};
      }
      for (const int32_t v : n.out) made_at_[static_cast<size_t>(v)] = static_cast<int64_t>(home);
    }
  }

  // The op and its attributes that do what the members do.
  std::pair<const OpDef*, Attrs> fused(const std::vector<size_t>& members) const {
    const Node& first = g_.nodes()[members[0]];
    if (first.op->together) {
      const Signature s = joined(*first.op->together, members);
      return {s.op, s.attrs};
    }
    ops::MultiTensorPointwise a{expression_of(g_, first), static_cast<int64_t>(members.size()), ""};
    for (const int32_t v : first.out)
      a.dtypes += str(a.dtypes.empty() ? "" : ",", g_.type(v).dtype);
    return {&ops::def::multi_tensor_pointwise(), a};
  }

  void add_fused(Rewriter& rw, const std::vector<size_t>& members) const {
    const Node& first = g_.nodes()[members[0]];
    const auto [op, attrs] = fused(members);
    std::vector<Value> in;
    std::vector<int32_t> out;
    for (const size_t m : members) {
      const Node& n = g_.nodes()[m];
      for (const Value v : rw.map(n.in)) in.push_back(v);
      out.insert(out.end(), n.out.begin(), n.out.end());
    }
    const AtScope scope(rw.to(), first.at);
    const std::vector<Value> made = rw.to().add(*op, attrs, in);
    for (size_t k = 0; k < out.size(); ++k) rw.set(out[k], made[k]);
  }

  const Graph g_;
  const Supports& supports_;
  std::vector<int64_t> made_at_;                  // producing node; -1: a source
  std::map<size_t, std::vector<size_t>> groups_;  // by first member; empty: fused into another
};

// Hoists what depends on parameters only (their casts and slices) to the front, ordered by depth,
// so that equal nodes meet and can fuse.
Graph hoist_parameter_only_nodes(const Graph& g) {
  constexpr size_t other = 1000;
  std::vector<size_t> level(static_cast<size_t>(g.values()), other);
  for (const Source& s : g.sources())
    if (s.kind != Source::Kind::input) level[static_cast<size_t>(s.value)] = 0;
  std::vector<std::vector<size_t>> order(other + 1);
  for (size_t i = 0; i < g.nodes().size(); ++i) {
    const Node& n = g.nodes()[i];
    size_t at = n.in.empty() ? other : 0;
    for (const int32_t v : n.in) {
      const bool large = g.type(v).shape.numel() > most_elements;
      at = std::max(at, large ? other : level[static_cast<size_t>(v)] + 1);
    }
    at = std::min(at, other);
    for (const int32_t v : n.out) level[static_cast<size_t>(v)] = at;
    order[at].push_back(i);
  }
  Rewriter rw(g);
  rw.copy_sources();
  for (const auto& nodes : order)
    for (const size_t i : nodes) rw.copy(g.nodes()[i]);
  rw.copy_ends();
  return rw.take();
}

// Moves nodes that only rename a value to where that is made: readers of the names of two results
// may fuse.
class RenamesHoister {
 public:
  explicit RenamesHoister(const Graph& g) : g_(g), rw_(g) {
    for (const Node& n : g.nodes())
      if (n.op->renames) names_[n.in[0]].push_back(&n);
  }

  Graph run() {
    rw_.copy_sources();
    for (const Source& s : g_.sources()) add_names_of(s.value);
    for (const Node& n : g_.nodes())
      if (!n.op->renames) add(n);
    rw_.copy_ends();
    return rw_.take();
  }

 private:
  void add(const Node& n) {
    rw_.copy(n);
    for (const int32_t v : n.out) add_names_of(v);
  }
  void add_names_of(int32_t v) {
    if (const auto it = names_.find(v); it != names_.end())
      for (const Node* n : it->second) add(*n);
  }

  const Graph& g_;
  Rewriter rw_;
  std::map<int32_t, std::vector<const Node*>> names_;  // by what they rename
};

}  // namespace

Graph fuse_horizontally(const Graph& g, const Supports& supports) {
  return HorizontalFuser(RenamesHoister(hoist_parameter_only_nodes(g)).run(), supports).run();
}

}  // namespace ebb
