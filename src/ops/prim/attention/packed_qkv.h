// Calls of kernels of attention and its gradient, which take addresses of q, k and v and, of the
// gradient, of dq, dk and dv, wherever these lie: in tensors of their own, packed, through views.
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

// The same call with separate addresses of the first elements that `z.at` describes.
inline Call unpacked(const AttentionSizes& z, DType dtype, const Call& call) {
  if (!z.packed && !z.viewed) return call;
  Call c = call;
  const auto move = [&](void*& address, const HeadView& at) {
    address = static_cast<char*>(address) + at.offset * size_of(dtype);
  };
  const auto three = [&](std::vector<void*>& all, const HeadView& a, const HeadView& b,
                         const HeadView& d, bool in_one) {
    if (in_one) all.insert(all.begin() + 1, {all[0], all[0]});
    move(all[0], a), move(all[1], b), move(all[2], d);
  };
  three(c.in, z.at.q, z.at.k, z.at.v, z.packed);
  const bool forward = call.out.size() == 2;  // o and lse
  if (forward) {
    move(c.out[0], z.at.o);
    return c;
  }
  three(c.out, z.at.dq, z.at.dk, z.at.dv, call.out.size() == 1);
  const size_t o = call_at(z).o;
  move(c.in[o], z.at.o), move(c.in[o + 2], z.at.dout);
  return c;
}

}  // namespace ebb::ops
