// fuse_epilogues: what is computed of the products of matmuls and convolutions becomes part of
// them.
#pragma once

#include <functional>

#include "ir/op.h"

namespace ebb {

struct FuseEpilogues {
  // Whether on the device a contraction is in one cost class with the epilogue and without.
  std::function<bool(const Signature& plain, const Signature& fused)> supports;
  // What is prepared once, where weights are; null: nothing.
  std::function<bool(const Source&)> is_weight = nullptr;
  bool sums_only = false;  // no expressions but sums
};

// On a lowered graph, before fuse and prepare. The epilogue of each contraction (ir/contraction.h)
// takes in pointwise nodes that read its result, or halves of its columns, one after the other, as
// long as the device serves the expression and fewer bytes move than if inline_producers() or
// elide_copies() took them. What other nodes still read becomes a second result. Two contractions
// that are added up become one with further products. docs/epilogues.md.
Graph fuse_epilogues(const Graph& g, const FuseEpilogues& how);

}  // namespace ebb
