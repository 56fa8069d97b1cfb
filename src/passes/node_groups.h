// NodeGroups: groups of a graph's nodes that become one node each; what fuse_rows and fuse_spatial
// share.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <vector>

#include "ir/op.h"

namespace ebb {

class NodeGroups {
 public:
  using Group = std::set<size_t>;  // members in the order of the graph
  explicit NodeGroups(const Graph& g);

  // ---- the graph
  const Node& node(size_t i) const { return g_.nodes()[i]; }
  const Type& type(int32_t v) const { return g_.type(v); }
  const std::set<size_t>& readers(int32_t v) const;
  Signature signature(const Node& n) const;  // of a node that the graph need not have

  // ---- a group that is being formed
  bool is_free(size_t i) const { return group_of_[i] < 0; }  // of the groups made so far
  // A fusion group must be convex: no path leaves it and comes back. Groups made so far count as
  // one node each.
  bool is_convex(const Group& group) const;
  bool produces_for(size_t c, const Group& group) const;  // do members read what c makes?
  std::vector<int32_t> inputs_of(const Group& group) const;
  bool needed_outside(int32_t v, const Group& group) const;
  void add(const Group& group, const Node& joined);

  // ---- the new graph
  // Nodes in their order; a group's node stands where its last member stood, or before what needs
  // it. `after(group, rw)` may add nodes behind it.
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
  std::map<int32_t, std::set<size_t>> readers_;  // nodes that read a value
  std::set<int32_t> kept_;                       // values that stay values
};

// The expressions of a group's values as they are written, member by member, and the terms of its
// totals, which are inputs behind the group's own.
struct GroupExpressions {
  int64_t inputs = 0;
  std::map<int32_t, Scalar> value;
  std::vector<Scalar> operands;
  std::string reductions;  // their kinds, one each

  explicit GroupExpressions(const std::vector<int32_t>& in);
  Scalar reduction(const Scalar& operand, std::string_view kind);
  std::vector<Scalar> of(const std::vector<int32_t>& values) const;
};

}  // namespace ebb
