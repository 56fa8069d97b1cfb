#include "ops/prim/conv2d/geometry.h"

#include <algorithm>

#include "base/error.h"

namespace ebb::ops {

double ConvGeometry::flops() const {
  return 2.0 * static_cast<double>(y().numel()) * static_cast<double>(kh * kw * c);
}

namespace {

// For errors: text only where it is shown, as the rule runs for every node of every pass.
struct Operands {
  const Shape &x, &w;
  const std::string& at;
};
std::ostream& operator<<(std::ostream& out, const Operands& o) {
  return out << "  images: " << o.x << "  weights: " << o.w << "  at " << o.at;
}

}  // namespace

ConvGeometry conv_geometry(const Signature& s, const Shape& x, const Shape& w,
                           const ConvPlacement& at) {
  const std::string_view op = s.op->name;
  const Operands operands{x, w, s.at};
  require(x.rank() == 4 && w.rank() == 4, op, ": images [N,H,W,C] and weights [O,KH,KW,C] have 4 ",
          "dims (", x.rank(), " and ", w.rank(), ")", operands);
  require(x[3] == w[3], op, ": channels must agree (", x[3], " and ", w[3], ")", operands);
  require(at.pad.size() == 4 &&
              std::all_of(at.pad.begin(), at.pad.end(), [](int64_t p) { return p >= 0; }),
          op, ": pad must be 4 sizes, not negative (got ", at.pad.size(), ")", operands);
  require(at.stride > 0, op, ": stride must be positive (", at.stride, ")", operands);
  for (int64_t d = 0; d < 4; ++d)
    require(w[d] > 0 && (d == 0 || x[d] > 0), op, ": sizes must be positive", operands);
  const ConvGeometry g{.n = x[0],
                       .h = x[1],
                       .w = x[2],
                       .c = x[3],
                       .o = w[0],
                       .kh = w[1],
                       .kw = w[2],
                       .stride = at.stride,
                       .top = at.pad[0],
                       .left = at.pad[1],
                       .bottom = at.pad[2],
                       .right = at.pad[3]};
  require(g.h + g.top + g.bottom >= g.kh && g.w + g.left + g.right >= g.kw, op, ": the kernel (",
          g.kh, "x", g.kw, ") must fit into the padded image (", g.h + g.top + g.bottom, "x",
          g.w + g.left + g.right, ")", operands);
  return g;
}

ConvGeometry rotated(const ConvGeometry& g) {
  return {.n = g.n,
          .h = g.out_h(),
          .w = g.out_w(),
          .c = g.o,
          .o = g.c,
          .kh = g.kh,
          .kw = g.kw,
          .top = g.kh - 1 - g.top,
          .left = g.kw - 1 - g.left,
          .bottom = g.h - g.out_h() + g.top,
          .right = g.w - g.out_w() + g.left};
}

}  // namespace ebb::ops
