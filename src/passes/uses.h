// Who reads the values of a lowered graph, and what fuse would make one pass of.
#pragma once

#include <set>
#include <vector>

#include "ir/op.h"

namespace ebb {

class Uses {
 public:
  explicit Uses(const Graph& g);
  // The nodes that read a value; their number stands for outputs and updates.
  const std::set<size_t>& readers(int32_t v) const { return readers_[static_cast<size_t>(v)]; }
  // The node of the graph that makes `v`, if nothing but one node reads it.
  const Node* made_for_one(int32_t v) const;
  // The only node that reads `v`, if there is one.
  const Node* only_reader(int32_t v) const;
  // fuse makes one pass of it and a formula of this shape. `n` may be null.
  bool melts(const Node* n, const Shape& shape) const;

 private:
  const Graph& g_;
  std::vector<std::set<size_t>> readers_;
};

}  // namespace ebb
