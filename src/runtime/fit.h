// Plans that fit into memory: as much of the forward pass is computed again in the backward pass
// (passes/recompute.h) as was asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "passes/memory.h"
#include "passes/recompute.h"

namespace ebb {

// What is computed again: off, formulas (all that cost no product), all, auto (as little as the
// device's free memory demands) or a size such as 8GB (as little as so much memory for the whole
// run demands).
struct Recompute {
  enum class Kind : uint8_t { off, formulas, all, fit };
  Kind kind = Kind::off;
  int64_t bytes = 0;          // fit: to fit into; 0: what is free
  std::string loss = "loss";  // the output whose gradients the graph computes
};
Recompute parse_recompute(std::string_view text);  // throws Error

struct Fitted {
  Recomputed nodes;
  MemoryPlan memory;
  Again again;
};

// `facts` are of the nodes of `g`; `free` bytes of the device's are free. Computes formulas alone
// again; nothing if that does not suffice.
std::optional<Fitted> fit_formulas(const Graph& g, const std::vector<NodeMemory>& facts,
                                   const Recompute& r, int64_t free);

// Computes all formulas again, and blocks. Where `auto` does not suffice, it is all blocks; a size
// that does not suffice is an Error.
Fitted fit_blocks(const Graph& g, const std::vector<NodeMemory>& facts, const Recompute& r,
                  int64_t free);

}  // namespace ebb
