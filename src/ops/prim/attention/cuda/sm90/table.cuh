// The wgmma kernels of attention by width.
#pragma once

#include "ops/prim/attention/cuda/sm90/kernel.cuh"
#include "ops/prim/attention/cuda/sm90/launch.h"

namespace ebb::ops::cuda {

// Time grows with the number of keys, and every key block costs as much as 16 keys more. Three
// consumer warpgroups hide more of the exponentials than two (H200).
template <class T, class S>
Sm90Kernel sm90_kernel() {
  constexpr double hidden = S::groups < 3 ? 1 : S::width <= 40 ? 0.82 : 0.9;
  constexpr double cost = hidden * (1 + 16.0 / S::keys);
  void (*combine)(Sm90Params) = nullptr;
  if constexpr (S::split_kv) combine = attention_sm90_combine<T, S>;
  return {attention_sm90<T, S>, combine,  S::width, S::keys, S::rows,
          S::threads,           S::bytes, S::tail,  cost};
}

template <class T>
std::vector<Sm90Kernel> sm90_kernels(int64_t width) {
  if (width <= 32)
    return {sm90_kernel<T, Sm90Shape<32, 128, 2>>(), sm90_kernel<T, Sm90Shape<32, 128, 3>>()};
  if (width <= 40)
    return {sm90_kernel<T, Sm90Shape<40, 128, 2>>(), sm90_kernel<T, Sm90Shape<40, 128, 3>>(),
            sm90_kernel<T, Sm90Shape<40, 128, 3, true>>(), sm90_kernel<T, Sm90Shape<40, 80, 2>>()};
  if (width <= 64)
    return {sm90_kernel<T, Sm90Shape<64, 128, 2>>(), sm90_kernel<T, Sm90Shape<64, 96, 3>>(),
            sm90_kernel<T, Sm90Shape<64, 96, 3, true>>(),
            sm90_kernel<T, Sm90Shape<64, 128, 2, true>>(), sm90_kernel<T, Sm90Shape<64, 80, 2>>()};
  if (width <= 72)
    return {sm90_kernel<T, Sm90Shape<72, 128, 2>>(), sm90_kernel<T, Sm90Shape<72, 80, 2>>()};
  if (width <= 80) return {sm90_kernel<T, Sm90Shape<80, 128, 2>>()};
  if (width <= 96) return {sm90_kernel<T, Sm90Shape<96, 128, 2>>()};
  if (width <= 128)
    return {sm90_kernel<T, Sm90Shape<128, 128, 2>>(),
            sm90_kernel<T, Sm90Shape<128, 128, 2, true>>()};
  if (width <= 160) return {sm90_kernel<T, Sm90Shape<160, 96, 2>>()};
  return {sm90_kernel<T, Sm90Shape<256, 64, 2>>()};
}

// The same of kernels that take a mask without a bias, up to width 128: wider ones have no
// registers left for it.
template <class T>
std::vector<Sm90Kernel> sm90_masked_kernels(int64_t width) {
  if (width <= 64) return {sm90_kernel<T, Sm90Shape<64, 128, 2, false, true>>()};
  if (width <= 80) return {sm90_kernel<T, Sm90Shape<80, 128, 2, false, true>>()};
  return {sm90_kernel<T, Sm90Shape<128, 128, 2, false, true>>()};
}

}  // namespace ebb::ops::cuda
