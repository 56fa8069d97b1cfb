// What the launches of attention on sm_90a share: a common condition of support, and the parameters
// of one call.
#pragma once

#include "ops/prim/attention/cuda/sizes.cuh"
#include "ops/prim/attention/cuda/tma_boxes.cuh"

namespace ebb::ops::cuda {

// Whether kernels for heads up to `widest`, which have no bias, may support the signature; there
// are fewer than 2^30 tiles of 64 queries.
inline bool on_sm90(const Signature& s, const Device& device, int64_t widest) {
  const AttentionSizes z = attention_sizes(s);
  constexpr int64_t most_tiles = int64_t{1} << 30;
  return on_tensor_cores(z, s, device, widest) && !z.bias &&
         ebb::cuda::of(device).capability() == 90 && z.n * z.a > 0 && z.t > 0 &&
         z.n * z.a * (z.t / 64 + 1) < most_tiles;
}

// Rows of the TMA boxes of q, k and v.
struct BoxRows {
  int q, k, v;
};

// Sets what parameters `p` (q, k and v: tensor maps; f: ForwardParams) take from a call, which is
// unpacked.
template <class P>
void bind(P& p, const AttentionSizes& z, DType dtype, const Call& call, const BoxRows& rows) {
  p.q = map_of(p.f.z, dtype, {call.in[0], z.t, p.f.z.q, rows.q});
  p.k = map_of(p.f.z, dtype, key_boxes(p.f.z, p.f.z.k, call.in[1], rows.k));
  p.v = map_of(p.f.z, dtype, key_boxes(p.f.z, p.f.z.v, call.in[2], rows.v));
  p.f.q = call.in[0], p.f.k = call.in[1], p.f.v = call.in[2];
  p.f.o = call.out[0], p.f.lse = static_cast<float*>(call.out[1]);
  p.f.mask = mask_of(p.f.mask, z, call);
}

}  // namespace ebb::ops::cuda
