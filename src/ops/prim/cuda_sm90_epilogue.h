// The epilogue of GEMMs and convolutions on sm_90a.
#pragma once

#include "backend/cuda/gemm/sm90/problem.h"
#include "ops/prim/epilogue.h"

namespace ebb::ops::cuda {

// What the problem must know of a use's bias and residual.
inline void set_epilogue(ebb::cuda::gemm::Problem& p, const Signature& s) {
  const Epilogue e = epilogue_of(s);
  p.bias = e.bias.has_value();
  if (e.bias) p.bias_type = s.in[*e.bias].dtype;
  p.residual = e.residual.has_value();
  if (e.residual) p.residual_type = s.in[*e.residual].dtype;
  p.residual_rows = e.rows;
}

// A function that finds the operands of a call: those of the GEMM, and its bias and residual.
inline auto epilogue_operands(const Signature& s) {
  return [e = epilogue_of(s)](const Call& c) {
    return ebb::cuda::gemm::Operands{.a = c.in[0],
                                     .b = c.in[1],
                                     .bias = address_of(e.bias, c),
                                     .residual = address_of(e.residual, c),
                                     .more = {},
                                     .out = c.out[0],
                                     .row_sums = c.out.size() == 2 ? c.out[1] : nullptr};
  };
}

}  // namespace ebb::ops::cuda
