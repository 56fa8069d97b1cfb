// q, k and v in one tensor [N,T,3,A,K], as the kernels of attention and its gradient take them.
#pragma once

#include "core/dtype.h"
#include "ir/kernel.h"
#include "ops/prim/attention/op.h"

namespace ebb::ops {

// Where the inputs of an unpacked call lie that follow q, k and v: a bias, key_lengths, and of the
// gradient o and what comes behind it.
struct CallAt {
  size_t bias, key_lengths, o;
};
inline CallAt call_at(AttentionSizes z) {
  z.packed = false;
  return {.bias = z.bias_at(), .key_lengths = z.key_lengths_at(), .o = z.operands()};
}

// The same call with q, k and v (and the outputs dq, dk and dv of the gradient) as three addresses
// each; rows of theirs are z.step() elements apart.
inline Call unpacked(const AttentionSizes& z, DType dtype, const Call& call) {
  if (!z.packed) return call;
  const auto three = [&](std::vector<void*>& all) {
    auto* const first = static_cast<char*>(all[0]);
    const int64_t bytes = z.out_step() * size_of(dtype);
    all.insert(all.begin() + 1, {first + bytes, first + 2 * bytes});
  };
  Call c = call;
  three(c.in);
  if (call.out.size() == 1) three(c.out);  // of the gradient; attention has o and lse
  return c;
}

}  // namespace ebb::ops
