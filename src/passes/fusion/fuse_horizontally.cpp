#include "passes/fusion/fuse_horizontally.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "passes/schedule/near_readers.h"

namespace ebb {
namespace {

// A kernel that takes so many uses takes any number of them.
constexpr size_t asked_uses = 8;

using Supports = std::function<bool(const Signature&)>;

class HorizontalFuser {
 public:
  HorizontalFuser(Graph g, const Supports& supports)
      : g_(std::move(g)),
        supports_(supports),
        restored_(restored_values(g_)),
        made_at_(static_cast<size_t>(g_.values()), -1) {}

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
    if (n.op->together == nullptr || n.in.empty()) return "";
    if (restored_[static_cast<size_t>(n.out[0])]) return "";  // each is made where it is read
    if (elements_of(n) > n.op->together->most_elements) return "";
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
    const Node& n = g_.nodes()[more];
    const Together& how = *n.op->together;
    if (members.size() >= how.most_uses || more - members[0] > how.most_apart ||
        elements_of(n) > how.most_elements - elements_.at(members[0]))
      return false;
    if (members.size() >= asked_uses) return true;
    std::vector<size_t> all = members;
    all.push_back(more);
    return supports_(joined(all));
  }
  Signature joined(const std::vector<size_t>& members) const {
    std::vector<Signature> uses;
    for (const size_t m : members) uses.push_back(g_.signature(g_.nodes()[m]));
    return g_.nodes()[members[0]].op->together->join(uses);
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
        elements_[home] += elements_of(n);
        if (home != i) groups_[i] = {};
      }
      for (const int32_t v : n.out) made_at_[static_cast<size_t>(v)] = static_cast<int64_t>(home);
    }
  }

  void add_fused(Rewriter& rw, const std::vector<size_t>& members) const {
    const Signature all = joined(members);
    std::vector<Value> in;
    std::vector<int32_t> out;
    for (const size_t m : members) {
      const Node& n = g_.nodes()[m];
      for (const Value v : rw.map(n.in)) in.push_back(v);
      out.insert(out.end(), n.out.begin(), n.out.end());
    }
    const AtScope scope(rw.to(), all.at);
    const std::vector<Value> made = rw.to().add(*all.op, all.attrs, in);
    for (size_t k = 0; k < out.size(); ++k) rw.set(out[k], made[k]);
  }

  const Graph g_;
  const Supports& supports_;
  const std::vector<bool> restored_;              // by value
  std::vector<int64_t> made_at_;                  // producing node; -1: a source
  std::map<size_t, std::vector<size_t>> groups_;  // by first member; empty: fused into another
  std::map<size_t, int64_t> elements_;            // of a group, by first member
};

// Hoists what depends on parameters only (their casts and slices) to the front, ordered by depth,
// so that equal nodes meet and can fuse.
Graph hoist_parameter_only_nodes(const Graph& g) {
  constexpr int64_t most_elements = int64_t{1} << 24;
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
