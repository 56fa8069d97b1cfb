// recompute: time for memory. What a block of the network computed is not kept for the backward
// pass but computed again there (activation checkpointing: Chen et al. 2016, arXiv:1604.06174).
//
// The last pass before the memory plan: its nodes are what kernels run, so the second computation
// is by the same kernels, to the same bits. No pass may follow that makes equal nodes one.
//
// Two kinds of things are computed again:
// - An expression: a value of one pointwise expression whose large inputs the backward pass reads
// too, or
//   random numbers. It costs a pass over memory and no product.
// - A block: all of the forward pass at and below the path of a module, a residual block, a
//   transformer block, a layer that stands alone. What stands between two belongs to the second.
// Kept are the values that cross from block to block, small ones (statistics of norms, embeddings),
// and what is made of weights alone.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace ebb {

struct Recomputed {
  Graph graph;
  std::vector<size_t> origin;  // by node: the node of the graph before that it is, or is a copy of
};

struct RecomputeCount {
  int64_t pointwise = 0, blocks = 0;
  bool operator==(const RecomputeCount&) const = default;
};

// What of a graph could be computed again; found once, for any number of choices.
class Recomputable {
 public:
  // In `g` the computation of the output `loss` comes before that of its gradients. `g` must live
  // as long as this. Throws Error if there is no such output.
  Recomputable(const Graph& g, std::string_view loss);

  RecomputeCount most() const { return most_; }
  // The graph with its first expressions and blocks computed again, each value before the first
  // node of the backward pass that needs it. The first come first, as they are kept longest.
  Recomputed with(const RecomputeCount& count) const;

 private:
  const Graph& g_;
  size_t end_;                               // of the forward pass
  std::vector<int32_t> expression_, block_;  // by value: the one that can make it again; -1: none
  RecomputeCount most_;
};

}  // namespace ebb
