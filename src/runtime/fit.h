// Plans that fit into memory: as many blocks of the forward pass are computed again in the backward
// pass (passes/recompute.h) as was asked for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "passes/memory.h"
#include "passes/recompute.h"

namespace ebb {

// What is computed again: off, all, auto (as few blocks as the device's free memory demands) or a
// size such as 8GB (as few as so much memory for the whole run demands).
struct Recompute {
  enum class Kind : uint8_t { off, all, fit };
  Kind kind = Kind::off;
  int64_t bytes = 0;          // fit: to fit into; 0: what is free
  std::string loss = "loss";  // the output whose gradients the graph computes
};
Recompute parse_recompute(std::string_view text);  // throws Error

struct Fitted {
  Recomputed nodes;
  MemoryPlan memory;
  int64_t blocks = 0;  // computed again
};

// `facts` are of the nodes of `g`; `free` bytes of the device's are free. Where `auto` does not
// suffice, all blocks are computed again; a size that does not suffice is an Error.
Fitted fit(const Graph& g, const std::vector<NodeMemory>& facts, const Recompute& r, int64_t free);

}  // namespace ebb
