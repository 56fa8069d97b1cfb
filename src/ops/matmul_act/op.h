// matmul_act: an activation of a GEMM, one half of its columns times an activation of the other,
// or a GEMM times an activation's gradient.
//
// What fuse_activations (passes/activations.h) makes of a matmul and the expression behind it,
// where a kernel does both at once. docs/epilogues.md.
#pragma once

#include <optional>

#include "ir/op.h"

namespace ebb::ops {

// a [..., M, K], b, perhaps bias [N] as matmul has them, of one dtype but for the bias; z = a b +
// bias, in that dtype. The result is act(z); with `grad`, for a last input y of z's type, z
// act'(y). Kernels may leave z unrounded there and round act'(y) instead. An act of two inputs
// takes z's columns [0, N/2) and [N/2, N), and the result is [..., M, N/2]: a gate, as GEGLU and
// SwiGLU are.
struct MatmulAct {
  Expr act;              // of one input, or of two
  bool trans_b = false;  // b is stored [..., N, K]
  bool grad = false;
  bool keep = false;  // without grad: z is a second result
  void fields(auto&& f) {
    f("act", static_cast<TextValue&>(act));
    f("trans_b", trans_b);
    f("grad", grad);
    f("keep", keep);
  }
};

namespace def {
const OpDef& matmul_act();
}

// Of x and y: y act'(x), as the gradient rule writes it.
Expr activation_grad_of(const Expr& act);

// The activations that kernels know: x sigmoid(linear x + cubic x^3), as SiLU and GELU with a tanh
// are, or GELU with an error function.
struct Gate {
  double linear = 1, cubic = 0;
  bool erf = false;
  size_t of = 0;  // the input that is activated; another is multiplied by that
};
// If the expression is one of them, or of two inputs and one times such of the other. Matched by
// structure (ir/normal_form.h); coefficients to the rounding of 64-bit floats.
std::optional<Gate> gate_of(const Expr& act);

// The use of matmul that gives z.
Signature product_of(const Signature& s);

}  // namespace ebb::ops
