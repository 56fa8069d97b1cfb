// The tensor-core kernels of attention by dtype and width.
#pragma once

#include "ops/prim/attention/cuda/forward.cuh"
#include "ops/prim/attention/cuda/widths.h"

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

template <class T, int D, bool Masked>
ForwardKernels kernels_of_width() {
  using S = ForwardShape<D>;
  ForwardKernels k{.ring = attention_ring<T, D, Masked>,
                   .rows = S::rows,
                   .blocks = S::blocks,
                   .block_bytes = S::block_bytes,
                   .ring_bytes = S::ring_bytes};
  if constexpr (S::query_in_registers && !Masked) k.resident = attention_resident<T, D>;
  return k;
}

// For the narrowest width that holds `width`, a multiple of 8 up to 256.
template <class T>
ForwardKernels forward_kernels(int64_t width) {
  return with_width<32, 40, 64, 72, 80, 128, 160, 256>(
      width, [](auto d) { return kernels_of_width<T, d.value, false>(); });
}

// The same of kernels that take a mask, at fewer widths.
template <class T>
ForwardKernels masked_kernels(int64_t width) {
  return with_width<64, 80, 128, 160, 256>(
      width, [](auto d) { return kernels_of_width<T, d.value, true>(); });
}

ForwardKernels forward_kernels_bf16(int64_t width, bool masked);
ForwardKernels forward_kernels_f16(int64_t width, bool masked);

}  // namespace ebb::ops::cuda
