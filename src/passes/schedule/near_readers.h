// near_readers: what is restored of weights in 8 bits (passes/precision/quantise_states.h) is made
// where it is read, again for each part of the graph that reads it, so that no restored weight
// lives from the forward to the backward pass.
#pragma once

#include <cstddef>
#include <vector>

#include "ir/graph.h"

namespace ebb {

struct NearReaders {
  Graph graph;
  std::vector<size_t> origin;  // by node: its original in the graph before
};

// By value: whether it is restored: computed from nothing but states that no update changes, at
// least one of them u8.
std::vector<bool> restored_values(const Graph& g);

// On the last graph before the memory plan, also behind recompute; as there, no pass that merges
// equal nodes may follow. Moves the nodes of restored values: each is made before its first reader,
// and again before one that stands more than 32 nodes behind the last. The same kernels on the same
// values: the same bits.
NearReaders near_readers(const Graph& g);

}  // namespace ebb
