// gradients: reverse-mode differentiation, graph to graph.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "ir/graph.h"

namespace ebb {

// `g` with an output "grad.<name>" for each of the sources `wrt`: the derivative of the f32 []
// output `loss`, of the source's shape and of its dtype or f32. Composite ops without a rule of
// their own are decomposed first. A source that the loss does not depend on gets zeros.
Graph gradients(const Graph& g, std::string_view loss, std::span<const std::string> wrt);

// The gradients of sum(outputs * their weights), where the weights are sources of the graph, of the
// outputs' shapes. The outputs are taken away.
struct WeightedOutput {
  std::string output, weight;  // names
};
Graph gradients(const Graph& g, std::span<const WeightedOutput> outputs,
                std::span<const std::string> wrt);

}  // namespace ebb
