// Plans that fit into memory: activations are recomputed (passes/schedule/recompute.h) as far as
// was asked for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "passes/schedule/memory.h"
#include "passes/schedule/recompute.h"

namespace ebb {

// What is recomputed: off, pointwise (everything that costs no matmul), all, auto (as little as the
// device's free memory demands) or a size such as 8GB (as little as that budget for the whole run
// demands).
struct Recompute {
  enum class Kind : uint8_t { off, pointwise, all, fit };
  Kind kind = Kind::off;
  int64_t bytes = 0;          // fit: the budget; 0: free memory
  int64_t beside = 0;         // bytes that it has to hold besides a run
  std::string loss = "loss";  // the output that the gradients are of
};
Recompute parse_recompute(std::string_view text);  // throws Error

// How a graph is lowered, by what may be recomputed later. no_recompute: everything fuses.
// pointwise: activations stay pointwise nodes. blocks: norms and their inputs also stay within
// their blocks.
enum class LoweringMode : uint8_t { no_recompute, pointwise, blocks };

// The lowering modes that may satisfy `r`, the fastest first.
std::vector<LoweringMode> lowering_modes(const Recompute& r);

struct Fitted {
  Recomputed nodes;
  MemoryPlan memory;
  RecomputeCount count;
};

// Plans `g`, lowered in `mode`, with as little recomputed as `r` asks for. Nothing if that exceeds
// the memory and another mode follows. `facts` are of the nodes of `g`; `free`: bytes free on the
// device; `driver`: those that it takes of a size beside the plan. If `auto` does not suffice, all
// blocks are recomputed; a size that does not suffice is an Error.
std::optional<Fitted> fit(const Graph& g, const std::vector<NodeMemory>& facts, const Recompute& r,
                          LoweringMode mode, int64_t free, int64_t driver = 0);

// Advice for a run of `g` that does not fit; `recomputed`: everything is recomputed already.
std::string advice_on_memory(const Graph& g, bool recomputed);

}  // namespace ebb
