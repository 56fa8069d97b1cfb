// conv2d: convolution of NHWC images (cross-correlation, as in every network).
#pragma once

#include <vector>

#include "ir/epilogue.h"
#include "ir/op.h"
#include "ir/result_dtypes.h"
#include "ops/prim/conv2d/geometry.h"

namespace ebb::ops {

// x [N,H,W,C], w [O,KH,KW,C], bias [O] -> [N,P,Q,O], P = (H + top + bottom - KH) / stride + 1
// rounded down, Q likewise. Behind x and w pairs of y [N,P,Q,D] and v [O,D] of their dtype, whose
// products y v^T are added to the convolution, as the shortcut of a residual block; then operands
// of the epilogue, as bias. Others have float dtypes of their own.
struct Conv2d {
  int64_t stride = 1;
  std::vector<int64_t> pad = {0, 0, 0, 0};  // top, left, bottom, right
  ResultDType dtype = {};                   // unspecified: as x
  int64_t products = 1;                     // with the pairs of y and v
  Epilogue epilogue = {};
  void fields(auto&& f) {
    f("stride", stride);
    f("pad", pad);
    f("dtype", dtype);
    f("products", products);
    f("epilogue", epilogue);
  }
};

namespace def {
const OpDef& conv2d();
}

ConvGeometry conv2d_geometry(const Signature& s);
// The uses of matmul that are added up with the convolution.
std::vector<Signature> added_products_of(const Signature& s);

// bias may be Value{}.
Value conv2d(Value x, Value w, Value bias = {}, const Conv2d& attrs = {});

}  // namespace ebb::ops
