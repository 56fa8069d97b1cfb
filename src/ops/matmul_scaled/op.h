// matmul_scaled: a GEMM, times one row of factors an image, added to a residual.
//
// What fuse_scaled_residuals (passes/scaled_residuals.h) makes of x + g (a b + bias), as blocks
// with adaLN-Zero end, where a kernel does all at once. docs/epilogues.md.
#pragma once

#include "ir/op.h"

namespace ebb::ops {

// a [N, ..., K], b [C, K], bias [C] if `bias`, residual [N, ..., C], scale [N, 1, ..., 1, W], all
// but the bias of one dtype -> residual + g (a b^T + bias), where g are the columns of scale from
// `column` on. Kernels may leave the product unrounded.
struct MatmulScaled {
  bool bias = false;
  int64_t column = 0;
  void fields(auto&& f) {
    f("bias", bias);
    f("column", column);
  }
};

namespace def {
const OpDef& matmul_scaled();
}

// The use of matmul that is scaled.
Signature scaled_product_of(const Signature& s);

}  // namespace ebb::ops
