// Gemm: a GEMM prepared for one signature; picks the kernel of tensor_cores.cuh or fma.cuh.
#pragma once

#include "backend/cuda/device/launch.h"
#include "backend/cuda/gemm/general/fma.cuh"
#include "backend/cuda/gemm/general/plan.h"
#include "backend/cuda/gemm/general/tensor_cores.cuh"

namespace ebb::cuda {

// Addresses of one run; bias and residual may be null.
struct GemmPointers {
  const void *a = nullptr, *b = nullptr, *bias = nullptr, *residual = nullptr;
  void *out = nullptr, *workspace = nullptr;
};

template <class A, K WhereA, class B, K WhereB, Narrow Tiles = Narrow::none>
class Gemm {
 public:
  Gemm(const GemmTask& task, const GemmPlan& plan, const A& a, const B& b)
      : task_(task), plan_(plan), a_(a), b_(b) {}

  // Fills in what the plan depends on.
  static void describe(GemmTask& task) {
    task.a_k = WhereA;
    task.b_k = WhereB;
    task.narrow = Tiles;
  }

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
      reduce_split_k({.partials = static_cast<const float*>(at.workspace),
                      .count = plan_.splits,
                      .elements = p.partial_elements,
                      .bias = at.bias,
                      .residual = at.residual,
                      .out = at.out,
                      .bias_dtype = task_.bias.value_or(DType::f32),
                      .residual_dtype = task_.residual.value_or(DType::f32),
                      .dtype = task_.out,
                      .n = task_.n,
                      .residual_rows = task_.residual_rows,
                      .aligned = task_.aligned},
                     device);
  }

 private:
  using Params = GemmParams<A, B>;

  Params params(const GemmPointers& at) const {
    Params p{.a = a_, .b = b_, .a_data = at.a, .b_data = at.b, .a_dtype = task_.a};
    p.b_dtype = task_.b;
    p.a_vector = task_.vectors(task_.a, task_.a_run);
    p.b_vector = task_.vectors(task_.b, task_.b_run);
    p.splits = static_cast<int>(plan_.splits);
    p.partial_elements = task_.out_rows * task_.n;
    p.out.n = static_cast<int>(task_.n);
    p.out.data = at.workspace;
    if (plan_.splits == 1) {
      p.out.data = at.out;
      p.out.dtype = task_.out;
      p.out.bias = at.bias;
      p.out.bias_dtype = task_.bias.value_or(DType::f32);
      p.out.residual = at.residual;
      p.out.residual_dtype = task_.residual.value_or(DType::f32);
      p.out.residual_rows = static_cast<int>(task_.residual_rows);
      p.out.residual_vector = task_.vectors(p.out.residual_dtype, task_.n);
    }
    p.out.vector = task_.vectors(p.out.dtype, task_.n);
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

  // Launches if `Tile` is the plan's; `Vector`: only for operands of vectors.
  template <class T, class Tile, bool Vector>
  bool tensor_tile(const Params& p, CudaDevice& device) const {
    if (plan_.m != Tile::m || plan_.n != Tile::n) return false;
    if (Vector && !(p.a_vector && p.b_vector)) return false;
    launch_tile<Tile>(gemm_tensor<T, Tile, A, WhereA, B, WhereB, Vector>, p,
                      Tile::shared_bytes(device.capability()), device);
    return true;
  }

  template <class T>
  bool narrow_tile(const Params& p, CudaDevice& device) const {
    if constexpr (Tiles == Narrow::columns)
      return tensor_tile<T, TensorTile<128, 32, 4, 1, 32, 4>, true>(p, device);
    if constexpr (Tiles == Narrow::both)
      return tensor_tile<T, TensorTile<128, 32, 4, 1, 32, 4>, false>(p, device) ||
             tensor_tile<T, TensorTile<32, 128, 1, 4, 32, 4>, false>(p, device);
    return false;
  }

  template <class T>
  void tensor(const Params& p, CudaDevice& device) const {
    using Small = TensorTile<64, 64, 2, 2, 32, 4>;
    if (tensor_tile<T, TensorTile<256, 128, 4, 2, 64, 3, true>, true>(p, device) ||
        tensor_tile<T, TensorTile<128, 128, 2, 2, 32, 4>, true>(p, device) ||
        narrow_tile<T>(p, device))
      return;
    if (!tensor_tile<T, Small, true>(p, device)) tensor_tile<T, Small, false>(p, device);
  }

  void simt(const Params& p, CudaDevice& device) const {
    using Large = SimtTile<128, 128>;
    using Small = SimtTile<64, 64>;
    const bool quick = task_.a == DType::f32 && task_.b == DType::f32 &&
                       (WhereA == K::inner || p.a_vector) && (WhereB == K::inner || p.b_vector);
    if (!quick)
      launch_tile<Small>(gemm_simt<Small, A, WhereA, B, WhereB, false>, p, 0, device);
    else if (plan_.m == Large::m)
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
