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

// What is computed again: off, expressions (all that cost no product), all, auto (as little as the
// device's free memory demands) or a size such as 8GB (as little as so much memory for the whole
// run demands).
struct Recompute {
  enum class Kind : uint8_t { off, pointwise, all, fit };
  Kind kind = Kind::off;
  int64_t bytes = 0;          // fit: to fit into; 0: what is free
  std::string loss = "loss";  // the output whose gradients the graph computes
};
Recompute parse_recompute(std::string_view text);  // throws Error

// What a graph is lowered for: to compute nothing again, so all that can is fused; expressions, so
// activations stay expressions; blocks, so norms and what they read stay in their blocks.
enum class LoweringMode : uint8_t { no_recompute, pointwise, blocks };

// In which ways a graph may be lowered to do as `r` asks, the fastest first.
std::vector<LoweringMode> lowering_modes(const Recompute& r);

struct Fitted {
  Recomputed nodes;
  MemoryPlan memory;
  RecomputeCount count;
};

// `g`, which was lowered in one of the ways, with as little computed again as `r` asks for;
// nothing if that is too large and another way follows. `facts` are of the nodes of `g`; `free`
// bytes of the device's are free. Where `auto` does not suffice, it is all blocks; a size that
// does not suffice is an Error.
std::optional<Fitted> fit(const Graph& g, const std::vector<NodeMemory>& facts, const Recompute& r,
                          LoweringMode mode, int64_t free);

// What to do where a run does not fit; `recomputed`: all that can be is computed again already.
std::string advice_on_memory(bool recomputed);

}  // namespace ebb
