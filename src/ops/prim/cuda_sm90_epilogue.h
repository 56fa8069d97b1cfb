// The epilogue of GEMMs and convolutions on sm_90a.
#pragma once

#include "backend/cuda/gemm/sm90/problem.h"
#include "base/error.h"
#include "ops/prim/epilogue_form.h"

namespace ebb::ops::cuda {

// For results of 16 bits.
inline ebb::cuda::Activation activation_of(const Gate& g) {
  if (g.erf) return ebb::cuda::gelu_in_16_bits;
  return {.linear = static_cast<float>(g.linear), .cubic = static_cast<float>(g.cubic)};
}

inline ebb::cuda::gemm::Post post_of(EpilogueForm::Kind kind) {
  using Kind = EpilogueForm::Kind;
  using ebb::cuda::gemm::Post;
  switch (kind) {
    case Kind::sum:
    case Kind::scaled: return Post::add;
    case Kind::activated: return Post::activate;
    case Kind::activation_grad: return Post::activation_grad;
    case Kind::gated: return Post::gate;
  }
  throw Error("matmul: an epilogue without a GEMM");
}

// What the problem must know of a use's epilogue, which has a form.
inline void set_epilogue(ebb::cuda::gemm::Problem& p, const Signature& s) {
  namespace gemm = ebb::cuda::gemm;
  using Kind = EpilogueForm::Kind;
  const EpilogueForm e = epilogue_form(s).value();
  p.bias = e.add.bias.has_value();
  if (e.add.bias) p.bias_type = s.in[*e.add.bias].dtype;
  p.residual = e.add.residual.has_value();
  if (e.add.residual) p.residual_type = s.in[*e.add.residual].dtype;
  p.residual_rows = e.add.rows;
  if (e.kind == Kind::scaled) {
    p.scale_rows = e.factor_rows;
    p.scale_pitch = s.in[*e.factors].shape[-1];
  }
  if (e.kind == Kind::sum || e.kind == Kind::scaled) return;
  p.activation = activation_of(e.gate);
  p.keep = e.keeps;
  p.post = post_of(e.kind);
  if (e.kind != Kind::gated) return;
  if (p.form == gemm::Form::nt) p.form = gemm::Form::gated;
  p.gate_first = e.gate.of == 0;
}

// Where the factors of a run begin, or null.
inline const void* factors_of(const Signature& s, const EpilogueForm& e, const Call& c) {
  if (!e.factors) return nullptr;
  return static_cast<const char*>(c.in[*e.factors]) +
         e.factor_column * size_of(s.in[*e.factors].dtype);
}

// A function that finds the operands of a call: those of the products, and of the epilogue.
inline auto epilogue_operands(const Signature& s) {
  return
      [s, e = epilogue_form(s).value(), end = s.op->contraction(s).first_operand()](const Call& c) {
        void* const second = c.out.size() == 2 ? c.out[1] : nullptr;
        ebb::cuda::gemm::Operands o{.a = c.in[0],
                                    .b = c.in[1],
                                    .bias = address_of(e.add.bias, c),
                                    .residual = address_of(e.add.residual, c),
                                    .grad_at = address_of(e.y, c),
                                    .scale = factors_of(s, e, c),
                                    .more = {},
                                    .out = c.out[0],
                                    .row_sums = e.keeps ? nullptr : second,
                                    .kept = e.keeps ? second : nullptr};
        for (size_t k = 2; k < end; k += 2) o.more[k / 2 - 1] = {c.in[k], c.in[k + 1]};
        return o;
      };
}

}  // namespace ebb::ops::cuda
