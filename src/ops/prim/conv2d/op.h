// conv2d: convolution of NHWC images (cross-correlation, as in every network).
#pragma once

#include <string>
#include <vector>

#include "ir/op.h"
#include "ops/prim/conv2d/geometry.h"

namespace ebb::ops {

// x [N,H,W,C], w [O,KH,KW,C], bias [O] -> [N,P,Q,O], P = (H + top + bottom - KH) / stride + 1
// rounded down, Q likewise; perhaps a residual (ops/prim/epilogue.h). Each has a float dtype of its
// own.
struct Conv2d {
  int64_t stride = 1;
  std::vector<int64_t> pad = {0, 0, 0, 0};  // top, left, bottom, right
  std::string dtype;                        // of the result; "": as x
  void fields(auto&& f) {
    f("stride", stride);
    f("pad", pad);
    f("dtype", dtype);
  }
};

namespace def {
const OpDef& conv2d();
}

ConvGeometry conv2d_geometry(const Signature& s);

// bias may be Value{}.
Value conv2d(Value x, Value w, Value bias = {}, const Conv2d& attrs = {});

}  // namespace ebb::ops
