// A convolution and its gradients as GEMMs on sm_90a.
#pragma once

#include "backend/cuda/gemm/sm90/problem.h"
#include "ops/prim/conv2d/geometry.h"

namespace ebb::ops::cuda {

// The images of x, read under every tap for each pixel of y.
inline ebb::cuda::gemm::Images sm90_images(const ConvGeometry& g) {
  const auto to_int = [](int64_t v) { return static_cast<int>(v); };
  return {.n = g.n,
          .h = g.h,
          .w = g.w,
          .c = g.c,
          .out_h = g.out_h(),
          .out_w = g.out_w(),
          .kh = to_int(g.kh),
          .kw = to_int(g.kw),
          .stride = to_int(g.stride),
          .top = to_int(g.top),
          .left = to_int(g.left),
          .bottom = to_int(g.bottom - (g.kh - 1)),
          .right = to_int(g.right - (g.kw - 1))};
}

// The images of dy under the taps of one phase of x, at a stride that divides x and the filter. The
// phases share a map: it begins under the first tap of those whose taps begin earliest.
inline ebb::cuda::gemm::Images sm90_phase_images(const ConvGeometry& g) {
  const auto to_int = [](int64_t v) { return static_cast<int>(v); };
  ebb::cuda::gemm::Images i{.n = g.n,
                            .h = g.out_h(),
                            .w = g.out_w(),
                            .c = g.o,
                            .out_h = g.h / g.stride,
                            .out_w = g.w / g.stride,
                            .kh = to_int(g.kh / g.stride),
                            .kw = to_int(g.kw / g.stride)};
  i.top = i.kh - 1 - to_int(g.top / g.stride);
  i.left = i.kw - 1 - to_int(g.left / g.stride);
  i.bottom = to_int(i.out_h - i.h) - i.top;
  i.right = to_int(i.out_w - i.w) - i.left;
  i.up = to_int(g.stride);
  i.up_top = to_int(g.top % g.stride);
  i.up_left = to_int(g.left % g.stride);
  return i;
}

}  // namespace ebb::ops::cuda
