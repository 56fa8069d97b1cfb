// activations: activations, gates and gradients of activations melt into the products that they
// read.
#pragma once

#include <functional>

#include "ir/op.h"

namespace ebb {

// On a lowered graph, before fuse. An activation of a product that is there anyway becomes the
// product's own result (ops/matmul_act), the product itself a second one if something else reads
// it; so does the gradient of an activation, where the gradient of its result is a product that
// nothing else reads: a pass over the product less. So does a formula of the two halves of a
// product's columns, as GEGLU is, with the activation that it reads. `serves(plain, with)`: the
// device runs the product with what follows as well as without it. docs/epilogues.md.
Graph add_activations(const Graph& g,
                      const std::function<bool(const Signature&, const Signature&)>& serves);

}  // namespace ebb
