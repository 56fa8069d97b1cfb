// conv2d_dw: the gradients of conv2d with respect to its weights and bias, in f32.
#pragma once

#include <vector>

#include "ir/op.h"
#include "ops/prim/conv2d/geometry.h"

namespace ebb::ops {

// x [N,H,W,C], dy [N,P,Q,O] of one dtype -> dw f32[O,KH,KW,C] and, if asked for, db f32[O].
struct Conv2dDw {
  int64_t stride = 1;
  std::vector<int64_t> pad = {0, 0, 0, 0};
  std::vector<int64_t> kernel = {1, 1};  // {KH, KW}
  bool bias = true;                      // db is a second output
  void fields(auto&& f) {
    f("stride", stride);
    f("pad", pad);
    f("kernel", kernel);
    f("bias", bias);
  }
};

namespace def {
const OpDef& conv2d_dw();
}

ConvGeometry conv2d_dw_geometry(const Signature& s);

std::vector<Value> conv2d_dw(Value x, Value dy, const Conv2dDw& attrs);  // {dw} or {dw, db}

}  // namespace ebb::ops
