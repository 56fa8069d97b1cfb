// timestep_embedding: cosines and sines of t at geometric frequencies (Vaswani et al. 2017, Ho et
// al. 2020): f_i = max_period^(-i / half), half = dim / 2.
#pragma once

#include "ir/op.h"

namespace ebb::ops {

struct TimestepEmbedding {
  int64_t dim = 0;  // even
  double max_period = 1e4;
  bool cos_first = true;  // [cos, sin]; else [sin, cos]
  bool endpoint = false;  // i / (half - 1) in the exponent: the last period is max_period
  void fields(auto&& f) {
    f("dim", dim);
    f("max_period", max_period);
    f("cos_first", cos_first);
    f("endpoint", endpoint);
  }
};

namespace def {
const OpDef& timestep_embedding();
}

// t [N] -> f32 [N,dim]. `dim` takes the place of attrs.dim.
Value timestep_embedding(Value t, int64_t dim, TimestepEmbedding attrs = {});

}  // namespace ebb::ops
