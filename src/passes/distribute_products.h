// distribute_products: x (W + A B) becomes x W + (x A) B, for changes of weights of low rank.
#pragma once

#include "ir/graph.h"

namespace ebb {

// A contraction that reads W + A B, or such sums one below the other, reads W, and adds the product
// by A of the product by B: 2 M r (N + K) operations beside 2 M N K, for x [M,K], W [N,K], A [N,r]
// and B [r,K], where the sum of weights would take 2 N r K and another pass over W. Above all, W
// then needs no gradient for the sake of A and B (Hu et al. 2021, section 4.1: LoRA as it is
// trained). Equal but for rounding. Left as it is: W that is trained (a param), as its gradient is
// needed anyway; factors of a rank that saves nothing, r >= N K / (N + K).
// On a forward graph, before gradients.
Graph distribute_products(const Graph& g);

}  // namespace ebb
