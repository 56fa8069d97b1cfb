// max_pool: the maximum of every window of NHWC images, each channel for itself.
#pragma once

#include "ir/op.h"

namespace ebb::ops {

// x [N,H,W,C] -> [N,P,Q,C], P = (H - window) / stride + 1 rounded down; no padding.
struct MaxPool {
  int64_t window = 2;
  int64_t stride = 2;
  void fields(auto&& f) {
    f("window", window);
    f("stride", stride);
  }
};

namespace def {
const OpDef& max_pool();
}

// The sizes of one use, from the type of x.
struct PoolGeometry {
  int64_t n = 0, h = 0, w = 0, c = 0, p = 0, q = 0;
  int64_t window = 0, stride = 0;
};
PoolGeometry pool_geometry(const Signature& s, const MaxPool& a);

Value max_pool(Value x, const MaxPool& attrs = {});
Value max_pool2(Value x);  // windows of 2x2 side by side

}  // namespace ebb::ops
