// attention_grad of short sequences on sm_90a: selection and launch of the kernels.
#include "ops/prim/attention_grad/cuda/sm90/head.cuh"

#include <algorithm>

#include "backend/cuda/device/launch.h"
#include "base/round_up.h"
#include "ops/prim/attention/cuda/tma_boxes.cuh"
#include "ops/prim/attention/cuda/widths.h"
#include "ops/prim/attention_grad/cuda/sm90/launch.cuh"

namespace ebb::ops::cuda {
namespace {

struct HeadGradKernel {
  void (*run)(HeadGradParams) = nullptr;
  int threads = 0;
  int64_t bytes = 0;  // of shared memory
};

template <class T, class S>
HeadGradKernel kernel_of(int blocks) {
  return {attention_grad_sm90_head<T, S>, S::threads, S::bytes(std::max(blocks, S::groups))};
}

template <class T, int D>
HeadGradKernel kernel_of_width(int blocks, int keys) {
  if (keys > 64) return kernel_of<T, HeadGradShape<D, 2, false>>(blocks);
  if (blocks > 1) return kernel_of<T, HeadGradShape<D, 1, false>>(blocks);
  return kernel_of<T, HeadGradShape<D, 1, true>>(blocks);
}

template <class T>
HeadGradKernel kernel(const HeadSizes& z, int blocks) {
  return with_width<32, 64>(z.width,
                            [&](auto d) { return kernel_of_width<T, d.value>(blocks, z.s); });
}

}  // namespace

bool serves_head(const HeadSizes& z) {
  constexpr int most_queries = 256, most_keys = 128;
  return z.width <= 64 && z.heads > 0 && z.t > 0 && z.t <= most_queries && z.s > 0 &&
         z.s <= most_keys;
}

void run_head(DType dtype, const GradParams& g, CudaDevice& device) {
  const HeadSizes& z = g.z;
  HeadGradParams p{.g = g};
  p.blocks = static_cast<int>(ceil_div(z.t, 64));
  const HeadGradKernel k =
      dtype == DType::bf16 ? kernel<__nv_bfloat16>(z, p.blocks) : kernel<__half>(z, p.blocks);
  const auto map = [&](const void* data, int rows, const HeadStrides& lies) {
    return map_of(z, dtype, {data, rows, lies, 64});
  };
  p.q = map(g.q, z.t, z.q), p.dq = map(g.dq, z.t, g.dq_lies);
  p.k = map(g.k, z.s, z.k), p.dk = map(g.dk, z.s, g.dk_lies);
  p.v = map(g.v, z.s, z.v), p.dv = map(g.dv, z.s, g.dv_lies);
  p.o = map(g.o, z.t, z.o), p.dout = map(g.dout, z.t, g.dout_lies);
  launch("attention_grad_sm90_head", k.run,
         {.grid = static_cast<unsigned>(z.heads),
          .block = static_cast<unsigned>(k.threads),
          .shared = k.bytes},
         p, device);
}

}  // namespace ebb::ops::cuda
