// The side stream of a plan: steps whose results are needed late, such as weight gradients in the
// backward pass, run concurrently with the main stream. Kernels that do not fill the device share
// it then.
#pragma once

#include <cstdint>
#include <vector>

#include "passes/memory.h"

namespace ebb {

// By node: true for matmuls, convolutions and attention whose results no node reads before `reach`
// others have run and none of which is an output of the graph, unless cooperative. `facts` are of
// the nodes. Short memory-bound passes stay on the main stream: on the side stream they made a
// training step 1.5 times as long.
std::vector<bool> side_stream_nodes(const Graph& g, const std::vector<NodeMemory>& facts,
                                    int32_t reach);

// The memory that a step accesses.
struct Touched {
  struct Range {
    const char* begin = nullptr;
    const char* end = nullptr;
  };
  std::vector<Range> reads, writes;
  bool side_stream = false;
};

// By step: the last step on the side stream that must have ended before it starts, or -1. Either
// stream runs its steps in order, and a side step starts after all that was enqueued before it. Of
// two steps that touch the same memory, one of them writing, the first ends first.
std::vector<int32_t> side_stream_waits(const std::vector<Touched>& steps);

}  // namespace ebb
