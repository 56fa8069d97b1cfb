// recompute: activation checkpointing. Activations of the forward pass are not kept for the
// backward pass but recomputed there (Chen et al. 2016, arXiv:1604.06174).
//
// Only near_readers stands between it and the memory plan: its nodes are what kernels run, so
// recomputing uses the same kernels and gives the same bits. No common-subexpression pass may
// follow.
//
// Two kinds of values are recomputed:
// - Pointwise: a value of one pointwise node whose large inputs the backward pass reads too, and
//   random numbers. It costs a pass over memory and no matmul.
// - Block: everything in the forward pass at and below the path of a module: a residual block, a
//   transformer block, a single layer. Nodes between two blocks belong to the second.
//
// Kept are the values that cross block boundaries, small ones (statistics of norms, embeddings),
// and what depends on parameters only.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "ir/graph.h"

namespace ebb {

struct Recomputed {
  Graph graph;
  std::vector<size_t> origin;  // by node: its original in the graph before
};

struct RecomputeCount {
  int64_t pointwise = 0, blocks = 0;
  bool operator==(const RecomputeCount&) const = default;
};

// What of a graph can be recomputed; found once, for any number of choices.
class Recomputable {
 public:
  // The nodes of the output `loss` come before those of its gradients. `g` must outlive this.
  // Throws Error if there is no such output.
  Recomputable(const Graph& g, std::string_view loss);

  RecomputeCount most() const { return most_; }
  // The graph with its first `count` pointwise values and blocks recomputed, each just before its
  // first reader in the backward pass. The first have the longest lifetimes.
  Recomputed with(const RecomputeCount& count) const;

 private:
  const Graph& g_;
  size_t end_;                               // of the forward pass
  std::vector<int32_t> expression_, block_;  // by value: which one recomputes it; -1: none
  RecomputeCount most_;
};

}  // namespace ebb
