// activations: activations, gated units and activation gradients fuse into the matmul that produces
// their input.
#pragma once

#include <functional>

#include "ir/op.h"

namespace ebb {

// On a lowered graph, before fuse.
// - An activation of a matmul becomes the matmul's result (ops/matmul_act). The pre-activation
//   becomes a second result if another node reads it.
// - An activation gradient fuses likewise where its incoming gradient is a matmul with no other
//   reader. Either saves a pass over the matmul's result.
// - So does a gated unit, an expression of the two halves of a matmul's columns such as GEGLU.
// `supports(plain, fused)`: on the device the fused matmul is in the same cost class as the plain
// one. docs/epilogues.md.
Graph fuse_activations(const Graph& g,
                       const std::function<bool(const Signature&, const Signature&)>& supports);

}  // namespace ebb
