// Work of a plan that runs beside the rest: steps whose results nobody needs soon, such as weight
// gradients in the backward pass. Kernels that do not fill the device share it then.
#pragma once

#include <cstdint>
#include <vector>

#include "passes/memory.h"

namespace ebb {

// By node: true for matrix work (products, convolutions, attention) whose results no node reads
// before `reach` others have run, and of which none is an output of the graph, unless they run
// alone. `facts` are of the nodes. Short passes over memory stay in line: aside they made steps
// slower by a half.
std::vector<bool> side_stream_nodes(const Graph& g, const std::vector<NodeMemory>& facts,
                                    int32_t reach);

// The memory that a step touches.
struct Touched {
  struct Range {
    const char* begin = nullptr;
    const char* end = nullptr;
  };
  std::vector<Range> reads, writes;
  bool side_stream = false;
};

// By step: the last step aside that must have ended before it starts, or -1. Steps aside run one
// after the other, each after all that was enqueued before it; the others run one after the other.
// Of two steps that touch the same memory, one of them writing, the first ends first.
std::vector<int32_t> side_stream_waits(const std::vector<Touched>& steps);

}  // namespace ebb
