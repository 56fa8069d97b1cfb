// The index arithmetic of 2-D convolution, shared by conv2d and its two gradients.
#pragma once

#include <string_view>
#include <vector>

#include "ir/op.h"

namespace ebb::ops {

// y[n,p,q,o] = sum over r,s,c of x[n, p*stride - top + r, q*stride - left + s, c] * w[o,r,s,c];
// x is zero outside of [0,H) x [0,W).
struct ConvGeometry {
  int64_t n = 0, h = 0, w = 0, c = 0;  // x [n,h,w,c]
  int64_t o = 0, kh = 0, kw = 0;       // w [o,kh,kw,c]
  int64_t stride = 1;
  int64_t top = 0, left = 0, bottom = 0, right = 0;

  int64_t out_h() const { return (h + top + bottom - kh) / stride + 1; }
  int64_t out_w() const { return (w + left + right - kw) / stride + 1; }
  Shape x() const { return {n, h, w, c}; }
  Shape weight() const { return {o, kh, kw, c}; }
  Shape y() const { return {n, out_h(), out_w(), o}; }
  double flops() const;  // two for each multiply-add, padding included
};

// Of stride 1: the convolution of y whose result is x, under the filter rotated by 180 degrees.
ConvGeometry rotated(const ConvGeometry& g);

// What the three ops have as attributes.
struct ConvPlacement {
  int64_t stride = 1;
  std::vector<int64_t> pad;  // {top, left, bottom, right}
};

// Sizes of a convolution of images `x` with weights `w`. Throws Error in the name of the
// signature's op if they do not fit.
ConvGeometry conv_geometry(const Signature& s, const Shape& x, const Shape& w,
                           const ConvPlacement& at);

// Calls f(index into x, index into w, index into y) for every product inside of the image.
template <class F>
void for_each_product(const ConvGeometry& g, F&& f) {
  const int64_t ph = g.out_h(), pw = g.out_w();
  for (int64_t i = 0; i < g.n * ph * pw * g.kh * g.kw; ++i) {
    const int64_t s = i % g.kw, r = i / g.kw % g.kh, q = i / (g.kw * g.kh) % pw;
    const int64_t p = i / (g.kw * g.kh * pw) % ph, n = i / (g.kw * g.kh * pw * ph);
    const int64_t row = p * g.stride - g.top + r, col = q * g.stride - g.left + s;
    if (row < 0 || row >= g.h || col < 0 || col >= g.w) continue;
    const int64_t x = ((n * g.h + row) * g.w + col) * g.c;
    const int64_t y = ((n * ph + p) * pw + q) * g.o;
    for (int64_t o = 0; o < g.o; ++o) {
      const int64_t w = ((o * g.kh + r) * g.kw + s) * g.c;
      for (int64_t c = 0; c < g.c; ++c)
        f(static_cast<size_t>(x + c), static_cast<size_t>(w + c), static_cast<size_t>(y + o));
    }
  }
}

}  // namespace ebb::ops
