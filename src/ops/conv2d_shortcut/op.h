// conv2d_shortcut: a convolution plus matmuls of other channels of the same pixels, in one sum.
//
// What merge_shortcuts (passes/shortcuts.h) makes of the end of a residual block whose shortcut is
// a 1x1 convolution, where a kernel adds up both.
#pragma once

#include <vector>

#include "ir/op.h"

namespace ebb::ops {

// x [N,H,W,C], w [O,KH,KW,C], bias [O] if `bias`, then one or two pairs of y [N,P,Q,D] and v [O,D];
// all but the bias of one dtype -> conv2d(x, w) + bias + y v^T + ..., [N,P,Q,O], rounded once.
struct Conv2dShortcut {
  int64_t stride = 1;
  std::vector<int64_t> pad = {0, 0, 0, 0};  // top, left, bottom, right
  bool bias = false;
  void fields(auto&& f) {
    f("stride", stride);
    f("pad", pad);
    f("bias", bias);
  }
};

namespace def {
const OpDef& conv2d_shortcut();
}

// The uses of conv2d, with the bias, and of matmul that are added up.
Signature shortcut_conv_of(const Signature& s);
std::vector<Signature> shortcut_matmuls_of(const Signature& s);

}  // namespace ebb::ops
