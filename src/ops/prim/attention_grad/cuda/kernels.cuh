// The tensor-core kernels of attention_grad by dtype and width.
#pragma once

#include "ops/prim/attention/cuda/widths.h"
#include "ops/prim/attention_grad/cuda/group.cuh"
#include "ops/prim/attention_grad/cuda/head.cuh"
#include "ops/prim/attention_grad/cuda/ring.cuh"

namespace ebb::ops::cuda {

struct GradKernel {
  void (*run)(GradParams) = nullptr;
  int rows = 0;  // keys or queries per thread block
  int threads = 0;
  int64_t bytes = 0;  // of shared memory
};

struct GradKernels {
  GradKernel group, head;  // run is null: the sequence is too long or the head too wide
  GradKernel preprocess, ring;
  int ring_queries = 0;  // per thread block of the ring kernel
};

template <class T, int D, int Warps>
GradKernel grad_head(int64_t t) {
  using S = GradHeadShape<D, Warps>;
  return {attention_grad_head<T, D, Warps>, S::keys, S::threads, S::bytes(static_cast<int>(t))};
}

template <class T, int D, int Groups, int Own>
GradKernel grad_group(int64_t t) {
  using S = GradGroupShape<D, Groups, Own>;
  return {attention_grad_group<T, D, Groups, Own>, S::keys, S::threads,
          S::bytes(static_cast<int>(t))};
}

template <class T, int D, bool Masked>
void add_ring(GradKernels& k) {
  using S = GradRingShape<D>;
  k.preprocess = {attention_grad_preprocess<T, 8>, kRowThreads / kRowLanes, kRowThreads, 0};
  k.ring = {attention_grad_ring<T, D, Masked>, S::key_rows, kGradThreads, S::bytes};
  k.ring_queries = S::query_rows;
}

template <class T, int D>
GradKernels grad_kernels_of_width(int64_t t, int64_t s) {
  GradKernels k;
  if constexpr (D == 72) {
    if (t <= 256 && s <= 64)
      k.group = grad_group<T, D, 1, 1>(t);
    else if (t <= 256 && s <= 128)
      k.group = grad_group<T, D, 2, 1>(t);
    else if (t <= 256 && s <= 256)
      k.group = grad_group<T, D, 2, 2>(t);
  }
  if constexpr (D <= 72) {
    if (t <= 256 && s <= 64)
      k.head = grad_head<T, D, 2>(t);
    else if (t <= 256 && s <= 128)
      k.head = grad_head<T, D, 4>(t);
    else if (t <= 256 && s <= 256)
      k.head = grad_head<T, D, 8>(t);
  }
  add_ring<T, D, false>(k);
  return k;
}

// For the narrowest width that holds `width`, a multiple of 8 up to 160.
template <class T>
GradKernels grad_kernels(int64_t width, int64_t t, int64_t s) {
  return with_width<32, 40, 64, 72, 80, 128, 160>(
      width, [=](auto d) { return grad_kernels_of_width<T, d.value>(t, s); });
}

// The same of kernels that take a mask, at fewer widths.
template <class T>
GradKernels masked_grad_kernels(int64_t width) {
  GradKernels k;
  with_width<64, 80, 128, 160>(width, [&](auto d) { add_ring<T, d.value, true>(k); });
  return k;
}

GradKernels masked_grad_kernels_bf16(int64_t width);
GradKernels masked_grad_kernels_f16(int64_t width);
GradKernels grad_kernels_bf16(int64_t width, int64_t t, int64_t s);
GradKernels grad_kernels_f16(int64_t width, int64_t t, int64_t s);

}  // namespace ebb::ops::cuda
