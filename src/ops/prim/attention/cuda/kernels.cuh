// The tensor-core kernels of attention by dtype and width.
#pragma once

#include "ops/prim/attention/cuda/forward.cuh"

namespace ebb::ops::cuda {

// The kernels for one dtype and width.
struct ForwardKernels {
  void (*resident)(ForwardParams) = nullptr;  // null: too wide for registers
  void (*ring)(ForwardParams) = nullptr;
  int rows = 0;             // queries per tile
  int blocks = 0;           // thread blocks per SM
  int64_t block_bytes = 0;  // of a block of 64 keys or values
  int64_t ring_bytes = 0;   // shared memory of the circular buffer
};

template <class T, int D>
ForwardKernels forward_kernels_of_width() {
  using S = ForwardShape<D>;
  ForwardKernels k{.ring = attention_ring<T, D, false>,
                   .rows = S::rows,
                   .blocks = S::blocks,
                   .block_bytes = S::block_bytes,
                   .ring_bytes = S::ring_bytes};
  if constexpr (S::query_in_registers) k.resident = attention_resident<T, D>;
  return k;
}

// For the narrowest width that holds `width`, a multiple of 8 up to 256.
template <class T>
ForwardKernels forward_kernels(int64_t width) {
  if (width <= 32) return forward_kernels_of_width<T, 32>();
  if (width <= 40) return forward_kernels_of_width<T, 40>();
  if (width <= 64) return forward_kernels_of_width<T, 64>();
  if (width <= 72) return forward_kernels_of_width<T, 72>();
  if (width <= 80) return forward_kernels_of_width<T, 80>();
  if (width <= 128) return forward_kernels_of_width<T, 128>();
  if (width <= 160) return forward_kernels_of_width<T, 160>();
  return forward_kernels_of_width<T, 256>();
}

// The same of kernels that take a mask, at fewer widths.
template <class T, int D>
ForwardKernels masked_kernels_of_width() {
  using S = ForwardShape<D>;
  return {.ring = attention_ring<T, D, true>,
          .rows = S::rows,
          .blocks = S::blocks,
          .block_bytes = S::block_bytes,
          .ring_bytes = S::ring_bytes};
}
template <class T>
ForwardKernels masked_kernels(int64_t width) {
  if (width <= 64) return masked_kernels_of_width<T, 64>();
  if (width <= 80) return masked_kernels_of_width<T, 80>();
  if (width <= 128) return masked_kernels_of_width<T, 128>();
  if (width <= 160) return masked_kernels_of_width<T, 160>();
  return masked_kernels_of_width<T, 256>();
}

ForwardKernels forward_kernels_bf16(int64_t width, bool masked);
ForwardKernels forward_kernels_f16(int64_t width, bool masked);

}  // namespace ebb::ops::cuda
