// The kernels of a graph, each prepared for its node.
#pragma once

#include <vector>

#include "passes/schedule/memory.h"
#include "runtime/context.h"

namespace ebb {

struct ChosenKernel {
  Choice choice;
  Signature sig;
  Program program;

  NodeMemory memory() const;
};

// By node of a lowered graph. Throws Error that names an op without a kernel on the device.
std::vector<ChosenKernel> choose_kernels(const Graph& g, const Context& context);

}  // namespace ebb
