// simplify: drops what nothing needs and computes equal things once.
#pragma once

#include "ir/graph.h"

namespace ebb {

// Nodes that no output or update depends on vanish; inputs, params and states that nothing reads
// stay, as they are the graph's interface.
Graph dead_code(const Graph& g);

// Nodes with the same op, attributes and inputs become one.
Graph common_subexpressions(const Graph& g);

// Expressions read no tensor that they do not use: gradient rules leave such inputs behind.
Graph drop_unused_inputs(const Graph& g);

}  // namespace ebb
