// Packed QKV: q, k and v in one tensor [N,T,3,A,K], for the kernels of attention and its gradient.
#pragma once

#include "core/dtype.h"
#include "ir/kernel.h"
#include "ops/prim/attention/op.h"

namespace ebb::ops {

// Indices of the inputs of an unpacked call behind q, k and v: bias, key_lengths, and for the
// gradient o (lse, do and dlse follow).
struct CallAt {
  size_t bias, key_lengths, o;
};
inline CallAt call_at(AttentionSizes z) {
  z.packed = false;
  return {.bias = z.bias_at(), .key_lengths = z.key_lengths_at(), .o = z.operands()};
}

// The same call with separate addresses of q, k and v (and of dq, dk and dv of the gradient), whose
// row stride is z.row_stride() elements.
inline Call unpacked(const AttentionSizes& z, DType dtype, const Call& call) {
  if (!z.packed) return call;
  const auto three = [&](std::vector<void*>& all) {
    auto* const first = static_cast<char*>(all[0]);
    const int64_t bytes = z.out_row_stride() * size_of(dtype);
    all.insert(all.begin() + 1, {first + bytes, first + 2 * bytes});
  };
  Call c = call;
  three(c.in);
  if (call.out.size() == 1) three(c.out);  // of the gradient; attention has o and lse
  return c;
}

}  // namespace ebb::ops
