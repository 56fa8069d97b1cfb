// conv2d_dx: the gradient of conv2d with respect to its images; also the transposed convolution.
#pragma once

#include <vector>

#include "ir/op.h"
#include "ir/result_dtypes.h"
#include "ops/prim/conv2d/geometry.h"

namespace ebb::ops {

// dy [N,P,Q,O], w [O,KH,KW,C] -> dx [N,H,W,C]: every element of dy adds its multiple of w to the
// window it was computed from; perhaps a bias [C] and a residual (ops/prim/epilogue.h).
struct Conv2dDx {
  int64_t stride = 1;
  std::vector<int64_t> pad = {0, 0, 0, 0};  // of the forward convolution
  std::vector<int64_t> size = {1, 1};       // {H, W}
  ResultDType dtype = {};                   // of dx; unspecified: as dy
  void fields(auto&& f) {
    f("stride", stride);
    f("pad", pad);
    f("size", size);
    f("dtype", dtype);
  }
};

// x [N,H,W,I], w [I,KH,KW,O], bias [O] -> [N, (H-1)*stride - top - bottom + KH + extra, ..., O].
struct ConvTranspose2d {
  int64_t stride = 1;
  std::vector<int64_t> pad = {0, 0, 0, 0};  // cut off: top, left, bottom, right
  int64_t extra = 0;  // rows and columns more at the bottom and right; less than stride
};

namespace def {
const OpDef& conv2d_dx();
}

ConvGeometry conv2d_dx_geometry(const Signature& s);

Value conv2d_dx(Value dy, Value w, const Conv2dDx& attrs);
// The transposed convolution; w is the weight of the forward convolution from O to I channels.
// bias may be Value{}.
Value conv_transpose2d(Value x, Value w, Value bias = {}, const ConvTranspose2d& attrs = {});

}  // namespace ebb::ops
