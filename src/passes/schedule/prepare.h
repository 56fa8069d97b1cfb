// prepare: splits a graph into what depends on weights alone, to be computed once, and the rest.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace ebb {

// A value of the prepare graph that the step graph reads.
struct PreparedValue {
  std::string source;  // of the step graph, a param; may be the value in another shape
  // The expression that computes it, over names of sources, as text: equal keys of whatever graphs
  // mean equal values.
  std::string key;
  int32_t value = -1;  // of the prepare graph; one of its sources where nothing is to compute
};

struct PreparedGraph {
  Graph step;     // of the sources that are weights it has none
  Graph prepare;  // sources: weights that are read
  std::vector<PreparedValue> values;
};

// Moves all nodes that depend on weights, and on no other source, to the prepare graph. What only
// repeats elements (a broadcast) stays in the step, which would else read more bytes than now;
// products never only repeat.
// `is_weight` must hold for no source that is updated.
PreparedGraph prepare(const Graph& g, const std::function<bool(const Source&)>& is_weight);

// By value: whether it depends on weights and on no other source, so that prepare() moves it.
std::vector<bool> values_from_weights(const Graph& g,
                                      const std::function<bool(const Source&)>& is_weight);

// A part of a value, of so many bytes from its first one on.
struct ValuePart {
  int32_t value = -1;
  int64_t offset = 0;
};
// What lies one after the other in a value that is a concatenation: each part can be computed in
// its place, by itself. Offsets are multiples of 256 bytes; one part where they would not be, and
// of other values.
std::vector<ValuePart> parts_of(const Graph& g, int32_t value);

// The part of `g` that computes `value`, as output "value". Its sources are states "in.0", "in.1",
// ...; `sources` gets their names in `g`. Values of equal expressions on sources of equal types
// give equal texts, whatever the sources' names.
Graph expression_of(const Graph& g, int32_t value, std::vector<std::string>& sources);

}  // namespace ebb
