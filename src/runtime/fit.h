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
// Bytes of "8GB" or "500MB"; none for other texts.
std::optional<int64_t> parse_size(std::string_view text);

// What a graph is lowered for: to compute nothing again, so all that can is fused; formulas, so
// activations stay formulas; blocks, so norms and what they read stay in their blocks.
enum class Spared : uint8_t { nothing, formulas, blocks };

// In which ways a graph may be lowered to do as `r` asks, the fastest first.
std::vector<Spared> ways_of(const Recompute& r);

struct Fitted {
  Recomputed nodes;
  MemoryPlan memory;
  Again again;
};

// `g`, which was lowered in one of the ways, with as little computed again as `r` asks for;
// nothing if that is too large and another way follows. `facts` are of the nodes of `g`; `free`
// bytes of the device's are free. Where `auto` does not suffice, it is all blocks; a size that
// does not suffice is an Error.
std::optional<Fitted> fit(const Graph& g, const std::vector<NodeMemory>& facts, const Recompute& r,
                          Spared way, int64_t free);

// What to do where a run does not fit; `recomputed`: all that can be is computed again already.
std::string advice_on_memory(bool recomputed);

}  // namespace ebb
