// NodeGroups: fusion groups, each of which becomes one node (fuse_loops).
#pragma once

#include <functional>
#include <map>
#include <set>
#include <vector>

#include "ops/loop/op.h"

namespace ebb {

class NodeGroups {
 public:
  using Group = std::set<size_t>;  // members in the order of the graph
  explicit NodeGroups(const Graph& g);

  // ---- the graph
  const Node& node(size_t i) const { return g_.nodes()[i]; }
  const Type& type(int32_t v) const { return g_.type(v); }
  const std::set<size_t>& readers(int32_t v) const;
  Signature signature(const Node& n) const;  // also of a node that is not in the graph

  // ---- forming a group
  bool is_free(size_t i) const { return group_of_[i] < 0; }  // not in a group so far
  // A fusion group must be convex: no path leaves it and comes back. Groups made so far count as
  // one node each.
  bool is_convex(const Group& group) const;
  bool produces_for(size_t c, const Group& group) const;  // does a member read a result of c?
  std::vector<int32_t> inputs_of(const Group& group) const;
  bool needed_outside(int32_t v, const Group& group) const;
  void add(const Group& group, const Node& joined);

  // ---- the new graph
  // Nodes keep their order; the node of a group takes the position of its last member, or of the
  // first reader if that comes earlier. `after(group, rw)` may add nodes behind it.
  Graph rebuild(const std::function<void(const Group&, Rewriter&)>& after) const;

 private:
  class Placer;
  size_t first_related(const Group& group) const;
  const Node& as_placed(size_t i) const {
    return group_of_[i] < 0 ? node(i) : joined_[static_cast<size_t>(group_of_[i])];
  }

  const Graph& g_;
  std::vector<int32_t> group_of_;  // by node; -1: none
  std::vector<Group> groups_;
  std::vector<Node> joined_;                     // by group
  std::map<int32_t, std::set<size_t>> readers_;  // readers of a value
  std::set<int32_t> kept_;                       // outputs and updates
};

// The expressions of a group's values, written member by member, and the operands of its
// reductions. The results of the reductions are inputs behind the group's own.
struct GroupExpressions {
  int64_t inputs = 0;
  std::map<int32_t, Scalar> value;
  std::vector<Scalar> operands;
  ListOf<ops::LoopReduction> reductions;  // of each

  explicit GroupExpressions(const std::vector<int32_t>& in);
  Scalar reduction(const Scalar& operand, const ops::LoopReduction& r);
  std::vector<Scalar> of(const std::vector<int32_t>& values) const;
};

}  // namespace ebb
