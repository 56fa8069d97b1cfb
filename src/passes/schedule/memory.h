// plan_memory: where every value of a graph lives. Lifetimes are static, so one arena holds all
// values and its size is the exact peak.
#pragma once

#include <functional>
#include <vector>

#include "ir/graph.h"

namespace ebb {

// What the memory plan knows of the kernel of a node.
struct NodeMemory {
  int64_t workspace = 0;          // bytes of scratch
  bool in_place = false;          // an output may share the memory of an input of the same type
  bool alias = false;             // the outputs are input 0 under another type
  bool cooperative = false;       // runs on the main stream, see Kernel::cooperative
  int32_t extended_lifetime = 0;  // on the side stream: nodes that may run concurrently
  // Which output may share with which input, by position; null: every pair.
  std::function<bool(size_t out, size_t in)> may_alias = nullptr;
};

struct Placement {
  int32_t source = -1;  // index into Graph::sources(), or -1: in the arena
  int64_t offset = 0;   // bytes into the source or the arena
};

struct MemoryPlan {
  std::vector<Placement> values;   // by value id
  std::vector<int64_t> workspace;  // by node: offset into the arena
  // By node: a copy whose results already lie where it would put them: a slice that is a range of
  // its operand's memory, a concatenation whose operands are made in its place.
  std::vector<bool> in_place_already;
  std::vector<NamedValue> copies;  // updates that could not be done in place: copied at the end
  int64_t arena_bytes = 0;         // the peak of everything but sources
};

int64_t source_bytes(const Graph& g);  // inputs, params, states

// Graph outputs live to the end. An update lands in its source's own memory if nothing reads the
// old content after the new one is written.
MemoryPlan plan_memory(const Graph& g, const std::function<NodeMemory(const Node&)>& memory_of);

}  // namespace ebb
