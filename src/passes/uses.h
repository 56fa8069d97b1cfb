// Readers of the values of a lowered graph, and which nodes inline_producers will merge.
#pragma once

#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "ir/op.h"

namespace ebb {

// Whether the graph updates the source: it is not the same in the next run.
bool is_updated(const Graph& g, const Source& s);

// The number of nodes up to the producer of the output `name`; none if there is no such output.
std::optional<size_t> end_of(const Graph& g, std::string_view name);

class Uses {
 public:
  explicit Uses(const Graph& g);
  // The readers of a value; the number of nodes stands for outputs and updates.
  const std::set<size_t>& readers(int32_t v) const { return readers_[static_cast<size_t>(v)]; }
  // The producer of `v` if `v` has exactly one reader.
  const Node* single_use_producer(int32_t v) const;
  // The only node that reads `v`, if there is one.
  const Node* only_reader(int32_t v) const;
  // Whether inline_producers will merge it with a pointwise node of this shape. `n` may be null.
  bool will_fuse(const Node* n, const Shape& shape) const;

 private:
  const Graph& g_;
  std::vector<std::set<size_t>> readers_;
};

}  // namespace ebb
