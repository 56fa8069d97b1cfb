// epilogue: residual adds fuse into the matmul or convolution that produces their input.
#pragma once

#include <functional>

#include "ir/op.h"

namespace ebb {

// On a lowered graph, before fuse. The sum of a matmul or convolution without other readers and of
// a tensor that is in memory anyway becomes that node with a residual operand
// (ops/prim/epilogue.h). It saves a pass over both. `supports(plain, fused)`: on the device the
// node with the residual is in the same cost class as the plain one. docs/epilogues.md.
Graph fuse_residuals(const Graph& g,
                     const std::function<bool(const Signature&, const Signature&)>& supports);

}  // namespace ebb
