// hoist: splits a graph into what depends on inputs that seldom change, to be computed when they
// do, and the step: the keys and values of a prompt in cross-attention, for example.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace ebb {

struct HoistedGraph {
  Graph step;
  Graph hoisted;                    // computes `states`, which it updates and the step reads
  std::vector<std::string> states;  // of one name and type in both; empty: nothing moves
};

// Moves the nodes that depend on inputs that are `kept`, and else on params, states that nothing
// updates and constants only. Nodes whose results have more elements than all that they read, and
// that cost less than reading these, stay: repeats, embeddings of numbers. Each graph has the
// sources that it reads, and the step those that nothing reads.
HoistedGraph hoist(const Graph& g, const std::function<bool(const Source&)>& kept);

}  // namespace ebb
