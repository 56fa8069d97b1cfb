// What the CPU kernels of matmul and conv2d share: programs of products by panels and on matrix
// tiles, with the bias and residual of a sum.
#pragma once

#include "backend/cpu/amx_gemm.h"
#include "backend/cpu/panel_gemm.h"
#include "ops/prim/epilogue.h"

namespace ebb::ops {

// The problem with the dtypes of the use and its bias and residual.
inline ebb::cpu::PanelProblem with_operands(ebb::cpu::PanelProblem p, const Signature& s) {
  const Summands e = summands_of(s);
  p.a = s.in[0].dtype;
  p.weights = s.in[1].dtype;
  p.c = s.out[0].dtype;
  if (e.bias) p.bias = s.in[*e.bias].dtype;
  if (e.residual) p.residual = s.in[*e.residual].dtype;
  p.residual_rows = e.rows;
  return p;
}
inline ebb::cpu::AmxProblem with_operands(ebb::cpu::AmxProblem p, const Signature& s) {
  const Summands e = summands_of(s);
  if (e.bias) p.bias = s.in[*e.bias].dtype;
  p.residual_rows = e.rows;
  return p;
}

// Of a PanelMatmul or AmxMatmul.
template <class Product>
Program program_of(const Product& product, const Signature& s) {
  const auto run = [product, e = summands_of(s)](const Call& c) {
    product.run({c.in[0], c.in[1], address_of(e.bias, c), address_of(e.residual, c), c.out[0],
                 c.workspace});
  };
  return {.workspace = product.scratch_bytes(), .run = run};
}

}  // namespace ebb::ops
