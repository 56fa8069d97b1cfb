// simplify: dead code, common subexpressions, and casts that need not be.
#pragma once

#include <functional>

#include "ir/graph.h"

namespace ebb {

// Removes nodes that no output or update depends on. Unused inputs, params and states stay: they
// are the graph's interface.
Graph dead_code(const Graph& g);

// Merges nodes with the same op, attributes and inputs.
Graph common_subexpressions(const Graph& g);

// A cast of a cast that lost nothing becomes one cast, or none where it comes back to the dtype
// that it started from. Rows of a table that was cast so are read from the table before and cast.
// An op whose results have the same types of either, as statistics have, reads what was cast, if
// `supported`; not expressions, which take in the cast (fuse), nor ops that are as precise as their
// operands.
Graph merge_casts(const Graph& g, const std::function<bool(const Signature&)>& supported);

// Whether the op may have such inputs and gives s.out of them.
bool gives_the_same(const Signature& s);

// Whether a node only casts, and whether it loses nothing.
bool is_cast(const Graph& g, const Node& n);
bool is_lossless_cast(const Graph& g, const Node& n);

// Removes inputs that an expression does not use: gradient rules leave them behind.
Graph drop_unused_inputs(const Graph& g);

}  // namespace ebb
