// Who reads the values of a lowered graph, and what fuse would make one pass of.
#pragma once

#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "ir/op.h"

namespace ebb {

// How many nodes there are up to the one that makes the output `name`; none if there is no such.
std::optional<size_t> end_of(const Graph& g, std::string_view name);

class Uses {
 public:
  explicit Uses(const Graph& g);
  // The nodes that read a value; their number stands for outputs and updates.
  const std::set<size_t>& readers(int32_t v) const { return readers_[static_cast<size_t>(v)]; }
  // The node of the graph that makes `v`, if nothing but one node reads it.
  const Node* single_use_producer(int32_t v) const;
  // The only node that reads `v`, if there is one.
  const Node* only_reader(int32_t v) const;
  // fuse makes one pass of it and an expression of this shape. `n` may be null.
  bool will_fuse(const Node* n, const Shape& shape) const;

 private:
  const Graph& g_;
  std::vector<std::set<size_t>> readers_;
};

}  // namespace ebb
