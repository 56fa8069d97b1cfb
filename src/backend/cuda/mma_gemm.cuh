// Gemm: a product made ready for one signature; picks the kernel of mma_tensor.cuh or mma_simt.cuh.
#pragma once

#include "backend/cuda/launch.h"
#include "backend/cuda/mma_plan.h"
#include "backend/cuda/mma_simt.cuh"
#include "backend/cuda/mma_tensor.cuh"

namespace ebb::cuda {

// Addresses of one run; bias may be null.
struct GemmPointers {
  const void *a = nullptr, *b = nullptr, *bias = nullptr;
  void *out = nullptr, *workspace = nullptr;
};

template <class A, K WhereA, class B, K WhereB>
class Gemm {
 public:
  Gemm(const GemmTask& task, const GemmPlan& plan, const A& a, const B& b)
      : task_(task), plan_(plan), a_(a), b_(b) {}

  // Enqueues it.
  void run(const GemmPointers& at, CudaDevice& device) const {
    const Params p = params(at);
    if (plan_.tensor && task_.a == DType::bf16)
      tensor<__nv_bfloat16>(p, device);
    else if (plan_.tensor)
      tensor<__half>(p, device);
    else
      simt(p, device);
    if (plan_.splits > 1)
      sum_parts({.parts = static_cast<const float*>(at.workspace),
                 .count = plan_.splits,
                 .elements = p.part_elements,
                 .bias = at.bias,
                 .out = at.out,
                 .bias_dtype = task_.bias.value_or(DType::f32),
                 .dtype = task_.out,
                 .n = task_.n},
                device);
  }

 private:
  using Params = GemmParams<A, B>;

  Params params(const GemmPointers& at) const {
    Params p{.a = a_, .b = b_, .a_data = at.a, .b_data = at.b, .a_dtype = task_.a};
    p.b_dtype = task_.b;
    p.a_vector = whole_pieces(at.a, task_.a, task_.a_run);
    p.b_vector = whole_pieces(at.b, task_.b, task_.b_run);
    p.splits = static_cast<int>(plan_.splits);
    p.part_elements = task_.out_rows * task_.n;
    p.out.n = static_cast<int>(task_.n);
    p.out.data = at.workspace;
    if (plan_.splits == 1) {
      p.out.data = at.out;
      p.out.dtype = task_.out;
      p.out.bias = at.bias;
      p.out.bias_dtype = task_.bias.value_or(DType::f32);
    }
    p.out.vector = whole_pieces(p.out.data, p.out.dtype, task_.n);
    return p;
  }

  template <class Tile>
  void launch_tile(void (*kernel)(Params), Params p, int64_t shared, CudaDevice& device) const {
    p.m_tiles = static_cast<int>(blocks_for(task_.m, Tile::m));
    p.n_tiles = static_cast<int>(blocks_for(task_.n, Tile::n));
    const int64_t blocks = int64_t{p.m_tiles} * p.n_tiles * plan_.splits * task_.batch;
    launch("gemm", kernel,
           {.grid = static_cast<unsigned>(blocks), .block = Tile::threads, .shared = shared}, p,
           device);
  }

  template <class T>
  void tensor(const Params& p, CudaDevice& device) const {
    using Large = TensorTile<128, 128, 2, 2, 32, 4>;
    using Small = TensorTile<64, 64, 2, 2, 32, 4>;
    const int64_t large = Large::shared_bytes(device.capability());
    const int64_t small = Small::shared_bytes(device.capability());
    if (!p.a_vector || !p.b_vector)
      launch_tile<Small>(gemm_tensor<T, Small, A, WhereA, B, WhereB, false>, p, small, device);
    else if (plan_.tile == Large::m)
      launch_tile<Large>(gemm_tensor<T, Large, A, WhereA, B, WhereB, true>, p, large, device);
    else
      launch_tile<Small>(gemm_tensor<T, Small, A, WhereA, B, WhereB, true>, p, small, device);
  }

  void simt(const Params& p, CudaDevice& device) const {
    using Large = SimtTile<128, 128>;
    using Small = SimtTile<64, 64>;
    const bool floats = task_.a == DType::f32 && task_.b == DType::f32;
    if (!p.a_vector || !p.b_vector || !floats)
      launch_tile<Small>(gemm_simt<Small, A, WhereA, B, WhereB, false>, p, 0, device);
    else if (plan_.tile == Large::m)
      launch_tile<Large>(gemm_simt<Large, A, WhereA, B, WhereB, true>, p, 0, device);
    else
      launch_tile<Small>(gemm_simt<Small, A, WhereA, B, WhereB, true>, p, 0, device);
  }

  GemmTask task_;
  GemmPlan plan_;
  A a_;
  B b_;
};

}  // namespace ebb::cuda
