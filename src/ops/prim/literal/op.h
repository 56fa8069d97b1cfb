// literal: numbers that are part of the graph, f32; for small tables.
#pragma once

#include <vector>

#include "ir/op.h"

namespace ebb::ops {

struct Literal {
  std::vector<double> values;  // row-major
  std::vector<int64_t> shape;
  void fields(auto&& f) {
    f("values", values);
    f("shape", shape);
  }
};

namespace def {
const OpDef& literal();
}

Value literal(Graph& g, std::vector<double> values, const Shape& shape);

}  // namespace ebb::ops
