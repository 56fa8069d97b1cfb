// recompute: time for memory. What a block of the network computed is not kept for the backward
// pass but computed again there (activation checkpointing: Chen et al. 2016, arXiv:1604.06174).
//
// The last pass before the memory plan: its nodes are what kernels run, so the second computation
// is by the same kernels, to the same bits. No pass may follow that makes equal nodes one.
//
// Two kinds of things are computed again:
// - A formula: a value of one pointwise formula whose large inputs the backward pass reads too. It
//   costs a pass over memory and no product.
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

struct Again {
  int64_t formulas = 0, blocks = 0;
  bool operator==(const Again&) const = default;
};

// How much of `g`, in which the computation of the output `loss` comes before that of its
// gradients, could be computed again. Throws Error if there is no such output.
Again most_again(const Graph& g, std::string_view loss);

// `g` with its first formulas and blocks computed again, each value before the first node of the
// backward pass that needs it. The first come first, as they are kept longest.
Recomputed recompute(const Graph& g, std::string_view loss, Again again);

}  // namespace ebb
