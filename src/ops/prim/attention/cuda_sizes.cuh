// The sizes of attention as the CUDA kernels take them, and which kernels may run.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "backend/cuda/device.h"
#include "backend/cuda/elements.cuh"
#include "ops/prim/attention/cuda_head.cuh"
#include "ops/prim/attention/packed_qkv.h"

namespace ebb::ops::cuda {

inline HeadSizes head_sizes(const AttentionSizes& z) {
  return {.heads = z.n * z.a,
          .step = z.step(),
          .out_step = z.out_step(),
          .a = static_cast<int>(z.a),
          .t = static_cast<int>(z.t),
          .s = static_cast<int>(z.s),
          .width = static_cast<int>(z.k),
          .scale = static_cast<float>(z.scale),
          .scale_log2 = static_cast<float>(z.scale * 1.4426950408889634)};
}

// Whether tensor-core kernels up to width `widest` serve the use.
inline bool on_tensor_cores(const Signature& s, const Device& device, int64_t widest) {
  const AttentionSizes z = attention_sizes(s);
  return s.in[0].dtype != DType::f32 && z.k % 8 == 0 && z.k <= widest && z.scale > 0 &&
         ebb::cuda::of(device).capability() >= 80;
}

// Whether 16-byte accesses are allowed on every tensor.
inline bool all_aligned(std::initializer_list<const void*> tensors) {
  uintptr_t bits = 0;
  for (const void* t : tensors) bits |= reinterpret_cast<uintptr_t>(t);
  return bits % 16 == 0;
}

}  // namespace ebb::ops::cuda
