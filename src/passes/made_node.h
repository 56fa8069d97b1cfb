// Adding nodes that a pass made of others.
#pragma once

#include "ir/graph.h"

namespace ebb {

// Adds `n`, whose values are those of rw.from(), with the types that its op's rule gives:
// Rewriter::copy() would take those that its results had there.
inline void add_made(Rewriter& rw, const Node& n) {
  const AtScope scope(rw.to(), n.at);
  const std::vector<Value> out = rw.to().add(*n.op, n.attrs, rw.map(n.in));
  for (size_t i = 0; i < out.size(); ++i) rw.set(n.out[i], out[i]);
}

}  // namespace ebb
