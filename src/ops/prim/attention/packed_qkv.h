// q, k and v in one tensor [N,T,3,A,K], as the kernels of attention and its gradient take them.
#pragma once

#include "core/dtype.h"
#include "ir/kernel.h"
#include "ops/prim/attention/op.h"

namespace ebb::ops {

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
  if (call.in.size() > 1) three(c.out);
  return c;
}

}  // namespace ebb::ops
