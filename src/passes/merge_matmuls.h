// merge_matmuls: products of one activation with several weights become one product.
#pragma once

#include <functional>

#include "ir/graph.h"

namespace ebb {

// On a lowered graph whose weights are prepared (passes/prepare.h). Products x W_i^T + b_i of one x
// [N,K] with a row a sample (embeddings of time and class, adaLN modulations), whose time goes into
// reading the W_i, become one product with the W_i on top of each other, of whose columns the
// results are slices. The W_i must depend on weights alone: they are put together once. Which
// products are merged does not depend on N, so that plans of all batches share the weights.
Graph merge_matmuls(const Graph& g, const std::function<bool(const Source&)>& is_weight);

}  // namespace ebb
