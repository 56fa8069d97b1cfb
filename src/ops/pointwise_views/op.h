// pointwise_views: an expression of tensors that lie in parts along the last dim, or are columns of
// wider ones, or whose results go to parts. Made by the passes `elide_concat_slice` and
// `elide_slices`.
#pragma once

#include <string>
#include <vector>

#include "ops/prim/segments.h"
#include "ops/prim/slices.h"

namespace ebb::ops {

// `pointwise` between `concat` and `slice`. The parts are those of tensors of the results' shape;
// columns are of other operands.
struct PointwiseViews {
  Expr expr;                   // one input an operand, one result a tensor to cut or to leave whole
  std::vector<int64_t> shape;  // of the results
  std::string dtypes;          // of the results, one each
  Segments segments = {};
  Slices slices = {};
  void fields(auto&& f) {
    f("expr", static_cast<TextValue&>(expr));
    f("shape", shape);
    f("dtypes", dtypes);
    segments.fields(f);
    slices.fields(f);
  }
};

namespace def {
const OpDef& pointwise_views();
}

// The use of pointwise in the middle.
Signature whole_of(const Signature& s);

}  // namespace ebb::ops
