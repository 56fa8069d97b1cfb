// The epilogue of products and convolutions on sm_90a.
#pragma once

#include "backend/cuda/gemm_sm90.h"
#include "ops/prim/epilogue.h"

namespace ebb::ops::cuda {

// What the problem must know of a use's bias and addend.
inline void set_epilogue(ebb::cuda::gemm::Problem& p, const Signature& s) {
  const Epilogue e = epilogue_of(s);
  p.bias = e.bias.has_value();
  if (e.bias) p.bias_type = s.in[*e.bias].dtype;
  p.addend = e.addend.has_value();
  if (e.addend) p.addend_type = s.in[*e.addend].dtype;
  p.addend_rows = e.rows;
}

}  // namespace ebb::ops::cuda
