// pointwise_views: a pointwise expression of which operands or results are views: segmented along
// the last dim, or slices of wider tensors. Made by the passes `elide_concat_slice` and
// `elide_slices`.
#pragma once

#include <string>
#include <vector>

#include "ops/prim/segments.h"
#include "ops/prim/slices.h"

namespace ebb::ops {

// `pointwise` between `concat` and `slice`. Segmented operands have the results' shape; sliced ones
// are others.
struct PointwiseViews {
  Expr expr;                   // one input per operand, one result per tensor before splitting
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
Signature full_of(const Signature& s);

}  // namespace ebb::ops
