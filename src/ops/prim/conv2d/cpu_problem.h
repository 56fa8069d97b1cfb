// A convolution's sizes as oneDNN's wrapper takes them; for the cpu.cpp of conv2d and its
// gradients.
#pragma once

#include "backend/cpu/onednn.h"
#include "ops/prim/conv2d/geometry.h"

namespace ebb::ops {

inline ebb::cpu::ConvProblem onednn_problem(const ConvGeometry& g) {
  return {.n = g.n,
          .h = g.h,
          .w = g.w,
          .c = g.c,
          .o = g.o,
          .kh = g.kh,
          .kw = g.kw,
          .stride = g.stride,
          .top = g.top,
          .left = g.left,
          .bottom = g.bottom,
          .right = g.right};
}

}  // namespace ebb::ops
