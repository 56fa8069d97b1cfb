// The epilogues that kernels have, matched by the structure of the expression.
#pragma once

#include "ops/prim/activation.h"
#include "ops/prim/epilogue.h"

namespace ebb::ops {

// Of the products, with the bias: z.
struct EpilogueForm {
  enum class Kind : uint8_t {
    sum,              // z, or z + residual
    scaled,           // residual + factors z, with a row of factors for each image
    activated,        // act(z)
    activation_grad,  // z act'(y)
    gated,            // one half of z's columns times the activation of the other
  };
  Kind kind = Kind::sum;
  Summands add;                      // what is added
  std::optional<size_t> factors, y;  // inputs
  int64_t factor_rows = 0;           // of the result that share a row of factors
  int64_t factor_column = 0;         // where they begin in their tensor
  Gate gate;
  bool keeps = false;  // z is a second result: of activations and gates
};

// Of a use of a contraction; none: it has no such form. All operands of others than sums but the
// bias have one dtype, that of the result.
std::optional<EpilogueForm> epilogue_form(const Signature& s);

// The use without the epilogue but for the bias: it gives z, in the result's dtype.
Signature with_bias_alone(const Signature& s);

}  // namespace ebb::ops
