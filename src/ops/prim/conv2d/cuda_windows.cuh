// A convolution's windows as an operand of a GEMM.
#pragma once

#include "backend/cuda/gemm/general/views.cuh"
#include "ops/prim/conv2d/geometry.h"

namespace ebb::ops::cuda {

// Outer: a pixel of the result; inner: an element (r, s, c) of its window.
inline ebb::cuda::Windows windows_of(const ConvGeometry& g) {
  const auto to_int = [](int64_t i) { return static_cast<int>(i); };
  ebb::cuda::Windows v;
  v.outers = to_int(g.n * g.out_h() * g.out_w());
  v.inners = to_int(g.kh * g.kw * g.c);
  v.h = to_int(g.h);
  v.w = to_int(g.w);
  v.c = to_int(g.c);
  v.stride = to_int(g.stride);
  v.first_row = -to_int(g.top);
  v.first_col = -to_int(g.left);
  v.end_row = to_int(g.out_h() * g.stride - g.top);
  v.places = ebb::FastDiv(g.out_h() * g.out_w());
  v.cols = ebb::FastDiv(g.out_w());
  v.channels = ebb::FastDiv(g.c);
  v.window_cols = ebb::FastDiv(g.kw);
  return v;
}

}  // namespace ebb::ops::cuda
