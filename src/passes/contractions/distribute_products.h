// distribute_products: x (W + A B) becomes x W + (x A) B, for changes of weights of low rank.
#pragma once

#include <cstdint>
#include <optional>

#include "ir/graph.h"

namespace ebb {

// The two factors of a matrix [N,K]: outer [N,r] times inner [r,K].
struct LowRankProduct {
  int32_t outer = -1, inner = -1;
};
// Of a value that is such a product, perhaps read in another shape. None where the rank saves
// nothing, r >= N K / (N + K), or where `shape` is no matrix.
std::optional<LowRankProduct> low_rank_product(const Graph& g, int32_t v, const Shape& shape);

// A contraction that reads W + A B, or such sums one below the other, reads W, and adds the product
// by A of the product by B: 2 M r (N + K) operations beside 2 M N K, for x [M,K], W [N,K], A [N,r]
// and B [r,K], where the sum of weights would take 2 N r K and another pass over W. Above all, W
// then needs no gradient for the sake of A and B (Hu et al. 2021, section 4.1: LoRA as it is
// trained). Equal but for rounding. Left as it is: W that is trained (a param), as its gradient is
// needed anyway; factors of a rank that saves nothing. The sum may be multiplied by a column [N,1],
// as weights of decomposed adapters are: then the products are, by a row.
// On a forward graph, before gradients.
Graph distribute_products(const Graph& g);

}  // namespace ebb
