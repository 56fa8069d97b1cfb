// simplify: dead code and common subexpressions.
#pragma once

#include "ir/graph.h"

namespace ebb {

// Removes nodes that no output or update depends on. Unused inputs, params and states stay: they
// are the graph's interface.
Graph dead_code(const Graph& g);

// Merges nodes with the same op, attributes and inputs.
Graph common_subexpressions(const Graph& g);

// A cast of a cast that lost nothing becomes one cast, or none where it comes back to the dtype
// that it started from. Rows of a table that was cast so are read from the table before and cast.
Graph merge_casts(const Graph& g);

// Whether a node casts and loses nothing.
bool is_lossless_cast(const Graph& g, const Node& n);

// Removes inputs that an expression does not use: gradient rules leave them behind.
Graph drop_unused_inputs(const Graph& g);

}  // namespace ebb
