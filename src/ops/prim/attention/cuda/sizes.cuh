// Problem sizes of attention for the CUDA kernels, and common conditions of support.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backend/cuda/device/device.h"
#include "backend/cuda/kit/elements.cuh"
#include "ops/prim/attention/cuda/mask.cuh"
#include "ops/prim/attention/packed_qkv.h"

namespace ebb::ops::cuda {

inline HeadStrides strides_of(const HeadView& v) { return {v.n, v.t, v.a}; }

inline HeadSizes head_sizes(const AttentionSizes& z) {
  return {.heads = z.n * z.a,
          .q = strides_of(z.at.q),
          .k = strides_of(z.at.k),
          .v = strides_of(z.at.v),
          .o = strides_of(z.at.o),
          .a = static_cast<int>(z.a),
          .t = static_cast<int>(z.t),
          .s = static_cast<int>(z.s),
          .width = static_cast<int>(z.k),
          .scale = static_cast<float>(z.scale),
          .scale_log2 = static_cast<float>(z.scale * 1.4426950408889634),
          .group = static_cast<int>(z.group())};
}

// A mask without the addresses of one call.
inline MaskParams mask_of(const AttentionSizes& z, const Signature& s) {
  MaskParams m;
  if (z.causal) m.diagonal = static_cast<int>(z.s - z.t + 1);
  if (!z.bias) return m;
  const Type& bias = s.in[z.bias_at()];
  const BiasStrides strides = bias_strides(bias.shape);
  m.bias_n = strides.n, m.bias_a = strides.a, m.bias_t = strides.t;
  m.bias_dtype = bias.dtype;
  m.pairs = z.s % 2 == 0 && s.aligned;
  return m;
}

// The same with them; `call` is unpacked.
inline MaskParams mask_of(MaskParams m, const AttentionSizes& z, const Call& call) {
  if (z.bias) m.bias = call.in[call_at(z).bias];
  if (z.key_lengths) m.key_lengths = static_cast<const int64_t*>(call.in[call_at(z).key_lengths]);
  return m;
}

// Whether the mma.sync kernels support the mask, if there is one.
inline bool takes_mask(const Signature& s) {
  const AttentionSizes z = attention_sizes(s);
  if (!z.bias) return true;
  const DType bias = s.in[z.bias_at()].dtype;
  return bias == DType::f32 || bias == s.in[0].dtype;
}

// Whether every row of a tensor that lies so begins at a multiple of 16 bytes, of 16-bit elements.
// Strides of TMA copies are less than 2^40 bytes.
inline bool has_aligned_rows(const HeadView& v) {
  constexpr int64_t pack = 8, longest = int64_t{1} << 39;
  return v.offset % pack == 0 && v.n % pack == 0 && v.t % pack == 0 && v.a % pack == 0 &&
         std::max({v.n, v.t, v.a}) < longest;
}

// Whether tensor-core kernels for heads up to `widest` support the signature: 16-byte accesses of
// every tensor, and of every head in it. `z`: the sizes of attention or of its gradient, which has
// more tensors.
inline bool on_tensor_cores(const AttentionSizes& z, const Signature& s, const Device& device,
                            int64_t widest) {
  const auto& at = z.at;
  const HeadView* const all[] = {&at.q, &at.k, &at.v, &at.o, &at.dout, &at.dq, &at.dk, &at.dv};
  return s.aligned && s.in[0].dtype != DType::f32 && z.k % 8 == 0 && z.k <= widest && z.scale > 0 &&
         ebb::cuda::of(device).capability() >= 80 &&
         std::ranges::all_of(all, [](const HeadView* v) { return has_aligned_rows(*v); });
}

}  // namespace ebb::ops::cuda
