// matmul_act: an activation of a product, or a product times an activation's slope.
//
// What add_activations (passes/activations.h) makes of a matmul and the formula behind it, where a
// kernel does both at once. docs/epilogues.md.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "ir/op.h"

namespace ebb::ops {

// a [..., M, K], b, perhaps bias [N] as matmul has them, of one dtype but for the bias; z = a b +
// bias, in that dtype. The result is act(z); with `slope`, for a last input y of z's type, z
// act'(y).
struct MatmulAct {
  std::string act;       // of activations()
  bool trans_b = false;  // b is stored [..., N, K]
  bool slope = false;
  bool keep = false;  // act(z): z is a second result
  void fields(auto&& f) {
    f("act", act);
    f("trans_b", trans_b);
    f("slope", slope);
    f("keep", keep);
  }
};

namespace def {
const OpDef& matmul_act();
}

// x sigmoid(linear x + cubic x^3) with the rounding of 64-bit floats, which an op defines.
struct KnownActivation {
  std::string_view name;
  const OpDef& (*op)();
  double linear, cubic;

  Expr formula() const;  // of x
  Expr slope() const;    // of x and y: y act'(x), as the gradient rule writes it
};
std::span<const KnownActivation> activations();
const KnownActivation& activation_of(const Signature& s);

// The use of matmul that gives z.
Signature product_of(const Signature& s);

}  // namespace ebb::ops
