// merge_matmuls: matmuls of one activation with several weights become one matmul.
#pragma once

#include <functional>

#include "ir/graph.h"

namespace ebb {

// On a lowered graph whose weights are prepared (passes/schedule/prepare.h). Matmuls x W_i^T + b_i
// of one x [N,K] with a row a sample (embeddings of time and class, adaLN modulations), whose time
// goes into reading the W_i, become one matmul with the concatenated W_i; the results are slices of
// its columns. The W_i must depend on weights only: they are concatenated once. A W_i that another
// node reads is not merged: the device would hold it twice. Which matmuls are merged does not
// depend on N, so that plans of all batches share the weights.
Graph merge_matmuls(const Graph& g, const std::function<bool(const Source&)>& is_weight);

}  // namespace ebb
