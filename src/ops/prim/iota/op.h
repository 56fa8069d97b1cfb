// iota: y[..., i, ...] = start + step * i along one dim, f32.
#pragma once

#include "ir/op.h"

namespace ebb::ops {

struct Iota {
  std::vector<int64_t> shape;
  int64_t dim = 0;
  double start = 0, step = 1;
  void fields(auto&& f) {
    f("shape", shape);
    f("dim", dim);
    f("start", start);
    f("step", step);
  }
};

namespace def {
const OpDef& iota();
}

Value iota(Graph& g, const Iota& attrs);

}  // namespace ebb::ops
