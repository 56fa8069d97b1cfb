#include "passes/fusion/node_groups.h"

#include <algorithm>

#include "base/error.h"
#include "passes/made_node.h"

namespace ebb {

NodeGroups::NodeGroups(const Graph& g) : g_(g), group_of_(g.nodes().size(), -1) {
  for (size_t i = 0; i < g.nodes().size(); ++i)
    for (const int32_t v : g.nodes()[i].in) readers_[v].insert(i);
  for (const NamedValue& o : g.outputs()) kept_.insert(o.value);
  for (const NamedValue& u : g.updates()) kept_.insert(u.value);
}

const std::set<size_t>& NodeGroups::readers(int32_t v) const {
  static const std::set<size_t> none;
  const auto at = readers_.find(v);
  return at == readers_.end() ? none : at->second;
}

Signature NodeGroups::signature(const Node& n) const {
  Signature s{n.op, n.attrs, {}, {}, n.at};
  for (const int32_t v : n.in) s.in.push_back(type(v));
  s.out = n.op->infer(s);
  return s;
}

bool NodeGroups::produces_for(size_t c, const Group& group) const {
  for (const int32_t v : node(c).out)
    for (const size_t r : readers(v))
      if (group.contains(r)) return true;
  return false;
}

std::vector<int32_t> NodeGroups::inputs_of(const Group& group) const {
  std::vector<int32_t> in;
  for (const size_t m : group)
    for (const int32_t v : node(m).in) {
      const int32_t p = g_.producer(v);
      if (p >= 0 && group.contains(static_cast<size_t>(p))) continue;
      if (std::find(in.begin(), in.end(), v) == in.end()) in.push_back(v);
    }
  return in;
}

bool NodeGroups::needed_outside(int32_t v, const Group& group) const {
  const std::set<size_t>& r = readers(v);
  return kept_.contains(v) ||
         std::any_of(r.begin(), r.end(), [&](size_t i) { return !group.contains(i); });
}

void NodeGroups::add(const Group& group, const Node& joined) {
  for (const size_t m : group) group_of_[m] = static_cast<int32_t>(groups_.size());
  groups_.push_back(group);
  joined_.push_back(joined);
}

// No node before this one depends on the group: no earlier group spans it.
size_t NodeGroups::first_related(const Group& group) const {
  size_t first = *group.begin();
  for (bool moved = true; moved;) {
    moved = false;
    for (const Group& g : groups_)
      if (*g.begin() < first && *g.rbegin() >= first) {
        first = *g.begin();
        moved = true;
      }
  }
  return first;
}

bool NodeGroups::is_convex(const Group& group) const {
  const size_t first = first_related(group);
  std::vector<bool> seen(g_.nodes().size());
  std::vector<size_t> open;
  const auto visit = [&](size_t i) {
    if (i < first) return;
    const int32_t other = group_of_[i];
    const Group one = {i};
    for (const size_t m : other < 0 ? one : groups_[static_cast<size_t>(other)]) {
      if (seen[m]) continue;
      seen[m] = true;
      open.push_back(m);
    }
  };
  const auto visit_inputs = [&](size_t i, bool member) {
    for (const int32_t v : node(i).in) {
      const int32_t p = g_.producer(v);
      if (p < 0) continue;
      const bool inside = group.contains(static_cast<size_t>(p));
      if (inside && !member) return true;
      if (!inside) visit(static_cast<size_t>(p));
    }
    return false;
  };
  for (const size_t m : group) visit_inputs(m, true);
  while (!open.empty()) {
    const size_t i = open.back();
    open.pop_back();
    if (visit_inputs(i, false)) return false;
  }
  return true;
}

// ---- the new graph --------------------------------------------------------------------------

class NodeGroups::Placer {
 public:
  Placer(const NodeGroups& groups, const std::function<void(const Group&, Rewriter&)>& after)
      : groups_(groups), after_(after), rw_(groups.g_), done_(groups.g_.nodes().size()) {}

  Graph run() {
    rw_.copy_sources();
    std::vector<size_t> open;
    for (size_t i = 0; i < done_.size(); ++i) {
      const int32_t group = groups_.group_of_[i];
      if (group >= 0 && *groups_.groups_[static_cast<size_t>(group)].rbegin() != i) continue;
      open.push_back(i);
      while (!open.empty()) {
        const size_t next = open.back();
        if (!done_[next] && wait_for_inputs(next, open)) continue;
        open.pop_back();
        if (!done_[next]) place(next);
      }
    }
    rw_.copy_ends();
    return rw_.take();
  }

 private:
  bool wait_for_inputs(size_t i, std::vector<size_t>& open) const {
    const size_t before = open.size();
    for (const int32_t v : groups_.as_placed(i).in) {
      const int32_t p = groups_.g_.producer(v);
      if (p >= 0 && !done_[static_cast<size_t>(p)]) open.push_back(static_cast<size_t>(p));
    }
    return open.size() > before;
  }
  void place(size_t i) {
    done_[i] = true;
    if (groups_.group_of_[i] < 0) return rw_.copy(groups_.as_placed(i));
    add_made(rw_, groups_.as_placed(i));
    const Group& group = groups_.groups_[static_cast<size_t>(groups_.group_of_[i])];
    for (const size_t m : group) done_[m] = true;
    after_(group, rw_);
  }

  const NodeGroups& groups_;
  const std::function<void(const Group&, Rewriter&)>& after_;
  Rewriter rw_;
  std::vector<bool> done_;
};

Graph NodeGroups::rebuild(const std::function<void(const Group&, Rewriter&)>& after) const {
  return groups_.empty() ? g_ : Placer(*this, after).run();
}

// ---- expressions -------------------------------------------------------------------------------

GroupExpressions::GroupExpressions(const std::vector<int32_t>& in)
    : inputs(static_cast<int64_t>(in.size())) {
  for (const int32_t v : in) value.emplace(v, Scalar::input(static_cast<int64_t>(value.size())));
}

Scalar GroupExpressions::reduction(const Scalar& operand, const ops::LoopReduction& r) {
  reductions.push_back(r);
  operands.push_back(operand);
  return Scalar::input(inputs + static_cast<int64_t>(operands.size()) - 1);
}

std::vector<Scalar> GroupExpressions::of(const std::vector<int32_t>& values) const {
  std::vector<Scalar> x;
  for (const int32_t v : values) x.push_back(value.at(v));
  return x;
}

}  // namespace ebb
