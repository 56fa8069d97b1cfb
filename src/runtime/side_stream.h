// The side streams of a plan. On one run steps whose results are needed late, such as weight
// gradients in the backward pass: kernels that do not fill the device share it then. On the other
// run collectives, which wait for other devices more than they compute.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/device.h"
#include "passes/schedule/memory.h"
#include "runtime/fit.h"

namespace ebb {

// By node: its side stream, if it runs on one. Collectives do; and matmuls, convolutions and
// attention whose results no node reads before `reach` others have run and none of which is an
// output of the graph, unless cooperative. A collective reads them when its own results are read:
// it waits on its stream, and the sum of a gradient does not call its GEMM back to the main stream.
// `facts` are of the nodes. Short memory-bound passes stay on the main stream: on the side stream
// they made a training step 1.5 times as long.
std::vector<std::optional<SideStream>> side_stream_nodes(const Graph& g,
                                                         const std::vector<NodeMemory>& facts,
                                                         int32_t reach);

// The same with the reach of plans, on a device that has side streams; on others none. Work there
// extends lifetimes in `facts`, so a plan that recomputes blocks to save memory has only
// collectives on them.
std::vector<std::optional<SideStream>> take_side_streams(const Graph& g,
                                                         std::vector<NodeMemory>& facts,
                                                         const Device& device, LoweringMode mode);

// What a step does that concerns other steps.
struct Touched {
  struct Range {
    const char* begin = nullptr;
    const char* end = nullptr;
  };
  std::vector<Range> reads, writes;
  std::optional<SideStream> side_stream;
  // Its kernel is cooperative (Kernel::cooperative), and collectives occupy the device
  // (Communicator::occupies_device).
  bool alone = false;
};

// By step: the steps on other side streams that must have ended before it starts, at most one of
// each. Every stream runs its steps in order, and a step on a side stream starts after all that the
// main stream was given before it. Of two steps that touch the same memory, one of them writing,
// the first ends first. So does a collective before a kernel that runs alone: its thread blocks
// would wait for some that find no room beside the collective, and the collective for another rank
// where it is the other way round.
std::vector<std::vector<int32_t>> side_stream_waits(const std::vector<Touched>& steps);

}  // namespace ebb
