// The hashed tensors of golden tests.
#pragma once

#include "ir/graph.h"
#include "nn/hashed_weights.h"

namespace ebb::testing {

using nn::hash_value, nn::hashed, nn::hashed_file_tensor, nn::hashed_input, nn::hashed_weight,
    nn::projection;

// Of a graph whose sources are as files have them.
inline nn::Weights weights_of(const Graph& g) {
  nn::Weights out;
  for (const Source& s : g.sources())
    if (s.kind != Source::Kind::input)
      out.push_back({s.name, g.type(s.value).shape, {}, s.kind == Source::Kind::param});
  return out;
}

}  // namespace ebb::testing
